-- Groups whose values are all null.
-- literal: events (at TIMESTAMP, k TEXT, v BIGINT, d DECIMAL(6,2))
-- {"at": "2024-01-01T00:00:01", "k": "a", "v": null, "d": null}
-- {"at": "2024-01-01T00:00:02", "k": "a", "v": null, "d": null}
-- {"at": "2024-01-01T00:00:03", "k": "b", "v": 1, "d": 0.5}
-- {"at": "2024-01-01T00:00:04", "k": "b", "v": null, "d": null}
-- {"at": "2024-01-01T00:00:12", "k": null, "v": null, "d": 1.25}
INSERT INTO output
SELECT window.start AS start, k, count(*) AS rows, count(v) AS n, sum(v) AS total, avg(v) AS mean, min(d) AS least, sum(d) AS d
FROM events GROUP BY tumble(INTERVAL '10 seconds'), k;

-- expect output
SELECT window.start, k, count(*), count(v), sum(v), avg(v), min(d), sum(d) FROM events GROUP BY window(at, '10 seconds'), k
