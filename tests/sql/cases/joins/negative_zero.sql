-- Minus zero comes through a join as it was.
-- literal: a (at TIMESTAMP, k INT, x DOUBLE)
-- {"at": "2024-03-01T00:00:00", "k": 1, "x": -0.0}
-- {"at": "2024-03-01T00:00:01", "k": 2, "x": 0.0}
-- {"at": "2024-03-01T00:00:02", "k": 3, "x": -1.5}
-- literal: b (at TIMESTAMP, k INT, f FLOAT)
-- {"at": "2024-03-01T00:00:00", "k": 1, "f": 0.0}
-- {"at": "2024-03-01T00:00:01", "k": 4, "f": -0.0}
-- sink: changelog
INSERT INTO output
SELECT a.k, CAST(a.x AS TEXT) AS x, CAST(b.f AS TEXT) AS f FROM a FULL JOIN b ON a.k = b.k;

-- expect output
SELECT a.k, CAST(a.x AS STRING) AS x, CAST(b.f AS STRING) AS f FROM a FULL JOIN b ON a.k = b.k
