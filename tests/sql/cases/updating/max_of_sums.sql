-- The greatest sum can sink when a group is corrected.
-- literal: events (at TIMESTAMP, k TEXT, v BIGINT)
-- {"at": "2024-01-01T00:00:01", "k": "a", "v": 10}
-- {"at": "2024-01-01T00:00:02", "k": "b", "v": 7}
-- {"at": "2024-01-01T00:00:03", "k": "a", "v": -5}
-- {"at": "2024-01-01T00:00:04", "k": "b", "v": -3}
-- {"at": "2024-01-01T00:00:05", "k": "c", "v": 1}
-- {"at": "2024-01-01T00:00:06", "k": "a", "v": -20}
-- sink: changelog
INSERT INTO output SELECT max(total) AS most, min(total) AS least FROM (SELECT k, sum(v) AS total FROM events GROUP BY k);

-- expect output
SELECT max(total) AS most, min(total) AS least FROM (SELECT k, sum(v) AS total FROM events GROUP BY k)
