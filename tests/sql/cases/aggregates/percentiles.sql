-- Exact and approximate percentiles, and the median.
-- input: rides
INSERT INTO output
SELECT window.start AS start, median(km) AS middle, percentile(km, 0.9) AS high, approx_percentile(km, 0.5) AS about
FROM rides GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, median(km), percentile(km, 0.9), approx_percentile(km, 0.5) FROM rides GROUP BY window(at, '30 minutes')
