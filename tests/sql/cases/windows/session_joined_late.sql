-- A row that comes later makes one session of two.
-- literal: pings (at TIMESTAMP, car TEXT, n BIGINT)
-- {"at": "2024-01-01T00:00:00", "car": "a", "n": 1}
-- {"at": "2024-01-01T00:00:16", "car": "a", "n": 2}
-- {"at": "2024-01-01T00:00:16", "car": "b", "n": 4}
-- {"at": "2024-01-01T00:00:08", "car": "a", "n": 8}
-- {"at": "2024-01-01T00:00:26", "car": "b", "n": 16}
-- {"at": "2024-01-01T00:02:00", "car": "a", "n": 32}
-- delay: 1 minute
INSERT INTO output
SELECT window.start AS start, window.end AS end, car, sum(n) AS total FROM pings
GROUP BY session(INTERVAL '10 seconds'), car;

-- expect output
SELECT session_window.start, session_window.end, car, sum(n) FROM pings
GROUP BY session_window(at, '10 seconds'), car
