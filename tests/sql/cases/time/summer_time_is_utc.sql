-- Where clocks elsewhere skip or repeat an hour, UTC does not: 24 windows on each day.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-03-31T00:59:59", "n": 1}
-- {"at": "2024-03-31T01:00:00", "n": 2}
-- {"at": "2024-03-31T01:59:59.999999", "n": 4}
-- {"at": "2024-03-31T02:30:00", "n": 8}
-- {"at": "2024-10-27T00:30:00", "n": 16}
-- {"at": "2024-10-27T01:30:00", "n": 32}
-- {"at": "2024-10-27T02:30:00", "n": 64}
-- {"at": "2024-10-27T03:30:00+01:00", "n": 128}
INSERT INTO output SELECT window.start AS start, hour(window.start) AS hour, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '1 hour');

-- expect output
SELECT window.start, hour(window.start), sum(n) FROM events GROUP BY window(at, '1 hour')
