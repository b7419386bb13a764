-- Skewness and kurtosis.
-- input: rides
INSERT INTO output
SELECT window.start AS start, skewness(km) AS s, kurtosis(km) AS k FROM rides GROUP BY tumble(INTERVAL '1 hour');

-- expect output
SELECT window.start, skewness(km), kurtosis(km) FROM rides GROUP BY window(at, '1 hour')
