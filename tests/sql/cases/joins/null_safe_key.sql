-- IS NOT DISTINCT FROM as a join key: null meets null. A comma join and <=> say the same.
-- literal: a (at TIMESTAMP, k BIGINT, x TEXT)
-- {"at": "2024-01-01T00:00:01", "k": null, "x": "a1"}
-- {"at": "2024-01-01T00:00:02", "k": 1, "x": "a2"}
-- {"at": "2024-01-01T00:00:03", "k": null, "x": "a3"}
-- {"at": "2024-01-01T00:00:04", "k": 2, "x": "a4"}
-- {"at": "2024-01-01T00:00:05", "k": 3, "x": "a5"}
-- literal: b (at TIMESTAMP, k BIGINT, y TEXT)
-- {"at": "2024-01-01T00:00:01", "k": 1, "y": "b1"}
-- {"at": "2024-01-01T00:00:02", "k": null, "y": "b2"}
-- {"at": "2024-01-01T00:00:03", "k": 1, "y": "b3"}
-- {"at": "2024-01-01T00:00:04", "k": null, "y": "b4"}
-- {"at": "2024-01-01T00:00:05", "k": 4, "y": "b5"}
CREATE TABLE tuples WITH (connector = 'filesystem', path = '$output/tuples', format = 'parquet', type = 'sink');
INSERT INTO output SELECT a.k, a.x, b.y FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k
    UNION ALL SELECT -a.k, a.x, b.y FROM a, b WHERE a.k <=> b.k;
INSERT INTO tuples SELECT a.x, b.y FROM a JOIN b ON (a.k, left(a.x, 0)) <=> (b.k, left(b.y, 0));

-- expect output
SELECT a.k, a.x, b.y FROM a JOIN b ON a.k <=> b.k UNION ALL SELECT -a.k, a.x, b.y FROM a JOIN b ON a.k <=> b.k
-- expect tuples
SELECT a.x, b.y FROM a JOIN b ON a.k <=> b.k
