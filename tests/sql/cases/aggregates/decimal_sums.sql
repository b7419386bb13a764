-- Sums of decimals stay exact and keep Spark's types.
-- literal: events (at TIMESTAMP, d DECIMAL(20,4), n INT)
-- {"at": "2024-01-01T00:00:01", "d": 99999999999.9999, "n": 2147483647}
-- {"at": "2024-01-01T00:00:02", "d": 0.0001, "n": 2147483647}
-- {"at": "2024-01-01T00:00:03", "d": -1.5, "n": -1}
-- {"at": "2024-01-01T00:00:14", "d": 99999999999.9999, "n": 5}
-- {"at": "2024-01-01T00:00:15", "d": 99999999999.9999, "n": null}
INSERT INTO output
SELECT window.start AS start, sum(d) AS total, avg(d) AS mean, sum(n) AS whole, avg(n) AS mean_n FROM events
GROUP BY tumble(INTERVAL '10 seconds');

-- expect output
SELECT window.start, sum(d), avg(d), sum(n), avg(n) FROM events GROUP BY window(at, '10 seconds')
