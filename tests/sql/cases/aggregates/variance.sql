-- Variance and deviation, of samples and of populations.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, variance(km) AS v, var_samp(km) AS vs, var_pop(km) AS vp, stddev(km) AS s, stddev_pop(km) AS sp
FROM rides GROUP BY tumble(INTERVAL '30 minutes'), kind;

-- expect output
SELECT window.start, kind, variance(km), var_samp(km), var_pop(km), stddev(km), stddev_pop(km)
FROM rides GROUP BY window(at, '30 minutes'), kind
