-- Aggregates that cannot be merged, without a window.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT kind, count(DISTINCT driver) AS drivers, median(km) AS middle, stddev(km) AS deviation, max_by(driver, km) AS farthest
FROM rides GROUP BY kind;

-- expect output
SELECT kind, count(DISTINCT driver) AS drivers, median(km) AS middle, stddev(km) AS deviation, max_by(driver, km) AS farthest
FROM rides GROUP BY kind
