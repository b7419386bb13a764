-- Many rows at the same instant, at the edge of a window.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-01-01T00:00:10", "n": 1}
-- {"at": "2024-01-01T00:00:10", "n": 1}
-- {"at": "2024-01-01T00:00:10", "n": 2}
-- {"at": "2024-01-01T00:00:10", "n": 2}
-- {"at": "2024-01-01T00:00:20", "n": 3}
-- {"at": "2024-01-01T00:00:20", "n": 3}
INSERT INTO output SELECT window.start AS start, n, count(*) AS rows FROM events GROUP BY tumble(INTERVAL '10 seconds'), n;

-- expect output
SELECT window.start, n, count(*) FROM events GROUP BY window(at, '10 seconds'), n
