-- Windows before the epoch are aligned to it, downwards.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "1969-12-31T23:59:53", "n": 1}
-- {"at": "1969-12-31T23:59:52.999999", "n": 2}
-- {"at": "1969-12-31T23:59:59.999999", "n": 4}
-- {"at": "1970-01-01T00:00:06.999999", "n": 8}
-- {"at": "1970-01-01T00:00:07", "n": 16}
INSERT INTO output SELECT window.start AS start, window.end AS end, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '7 seconds');

-- expect output
SELECT window.start, window.end, sum(n) FROM events GROUP BY window(at, '7 seconds')
