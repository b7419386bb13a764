-- A column that is event time on one side of a union alone does not bound how long rows are kept.
-- literal: a (at TIMESTAMP, k INT)
-- {"at": "2024-01-01T00:00:00", "k": 1}
-- {"at": "2024-01-01T00:01:00", "k": 1}
-- {"at": "2024-01-01T00:20:00", "k": 1}
-- literal: c (at TIMESTAMP, seen TIMESTAMP, k INT)
-- {"at": "2024-01-01T00:00:00", "seen": "2024-01-01T00:20:00", "k": 1}
-- {"at": "2024-01-01T00:00:30", "seen": "2024-01-01T00:20:30", "k": 1}
-- {"at": "2024-01-01T00:20:00", "seen": "2024-01-01T00:40:00", "k": 1}
-- literal: b (at TIMESTAMP, k INT, n INT)
-- {"at": "2024-01-01T00:00:00", "k": 1, "n": 1}
-- {"at": "2024-01-01T00:19:00", "k": 1, "n": 2}
-- {"at": "2024-01-01T00:20:00", "k": 1, "n": 3}
-- epoch_rows: 1
CREATE VIEW u AS SELECT at, k FROM a UNION ALL SELECT seen, k FROM c;
INSERT INTO output SELECT u.at, b.n FROM u JOIN b ON u.k = b.k AND u.at = b.at;

-- expect output
SELECT u.at, b.n FROM (SELECT at, k FROM a UNION ALL SELECT seen, k FROM c) u JOIN b ON u.k = b.k AND u.at = b.at
