-- A hop that is a tumble.
-- input: rides
INSERT INTO output
SELECT window.start AS start, driver, count(*) AS rides
FROM rides GROUP BY hop(INTERVAL '10 minutes', INTERVAL '10 minutes'), driver;

-- expect output
SELECT window.start, driver, count(*) FROM rides GROUP BY window(at, '10 minutes'), driver
