-- Rows without event time belong to no window.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-01-01T00:00:01", "n": 1}
-- {"at": null, "n": 2}
-- {"at": "2024-01-01T00:00:02", "n": 4}
-- {"at": null, "n": 8}
-- {"at": "2024-01-01T00:00:12", "n": 16}
INSERT INTO output SELECT window.start AS start, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '10 seconds');

-- expect output
SELECT window.start, sum(n) FROM events WHERE at IS NOT NULL GROUP BY window(at, '10 seconds')
