-- Rows far out of order, and none late.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-01-01T00:05:00", "n": 1}
-- {"at": "2024-01-01T00:00:00", "n": 2}
-- {"at": "2024-01-01T00:09:59", "n": 4}
-- {"at": "2024-01-01T00:00:01", "n": 8}
-- {"at": "2024-01-01T00:04:59.999999", "n": 16}
-- {"at": "2024-01-01T00:15:00", "n": 32}
-- {"at": "2024-01-01T00:05:00", "n": 64}
-- delay: 10 minutes
-- epoch_rows: 1
INSERT INTO output SELECT window.start AS start, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '1 minute');

-- expect output
SELECT window.start, sum(n) FROM events GROUP BY window(at, '1 minute')
