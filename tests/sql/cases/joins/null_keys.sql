-- Null equals no null: such rows join with nothing, and outer joins keep them.
-- literal: a (at TIMESTAMP, k BIGINT, x TEXT)
-- {"at": "2024-01-01T00:00:01", "k": null, "x": "a1"}
-- {"at": "2024-01-01T00:00:02", "k": 1, "x": "a2"}
-- {"at": "2024-01-01T00:00:03", "k": null, "x": "a3"}
-- {"at": "2024-01-01T00:00:04", "k": 2, "x": "a4"}
-- literal: b (at TIMESTAMP, k BIGINT, y TEXT)
-- {"at": "2024-01-01T00:00:01", "k": 1, "y": "b1"}
-- {"at": "2024-01-01T00:00:02", "k": null, "y": "b2"}
-- {"at": "2024-01-01T00:00:03", "k": 1, "y": "b3"}
-- {"at": "2024-01-01T00:00:04", "k": null, "y": "b4"}
-- sink: changelog
INSERT INTO output SELECT a.k, a.x, b.y FROM a FULL OUTER JOIN b ON a.k = b.k;

-- expect output
SELECT a.k, a.x, b.y FROM a FULL OUTER JOIN b ON a.k = b.k
