-- Names of Postgres and DataFusion.
-- input: rides
INSERT INTO output
SELECT window.start AS start, var(km) AS v, character_length(max(kind)) AS letters, extract(EPOCH FROM max(at)) AS seconds,
    stddev_samp(km) AS s
FROM rides GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, variance(km), character_length(max(kind)), unix_micros(max(at)) / 1000000, stddev_samp(km)
FROM rides GROUP BY window(at, '30 minutes')
