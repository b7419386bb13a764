-- Flink: arguments by name, an offset, and grouping by one end of the window alone.
-- input: rides
INSERT INTO output
SELECT window_end, driver, count(*) AS rides FROM TABLE(HOP(
    DATA => TABLE rides, TIMECOL => DESCRIPTOR(at), SLIDE => INTERVAL '4' MINUTES,
    SIZE => INTERVAL '10' MINUTES, OFFSET => INTERVAL '-1' MINUTES))
GROUP BY window_end, driver;

-- expect output
SELECT window.end, driver, count(*) FROM rides GROUP BY window(at, '10 minutes', '4 minutes', '3 minutes'), driver
