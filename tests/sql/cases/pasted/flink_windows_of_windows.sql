-- Flink: windows over the rows of windows, by window_time; grouping by it alone.
-- input: rides
CREATE VIEW narrow AS
SELECT window_start AS start, window_time AS rowtime, driver, sum(km) AS km
FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '5' MINUTES)) GROUP BY window_start, window_end, window_time, driver;
INSERT INTO output
SELECT window_start, window_end, sum(km) AS km
FROM TABLE(TUMBLE(TABLE narrow, DESCRIPTOR(rowtime), INTERVAL '20' MINUTES)) GROUP BY window_start, window_end;
INSERT INTO output
SELECT CAST(NULL AS TIMESTAMP) AS window_start, rowtime AS window_end, max(km) AS km FROM narrow GROUP BY rowtime;

-- expect output
SELECT window.start, window.end, sum(km) FROM rides GROUP BY window(at, '20 minutes')
UNION ALL
SELECT NULL, window.end - INTERVAL 1 MILLISECOND, max(km) FROM (
    SELECT window(at, '5 minutes') AS window, driver, sum(km) AS km FROM rides GROUP BY 1, 2) GROUP BY window
