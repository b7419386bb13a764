-- Spark: posexplode, inline and their outer forms, in select lists and LATERAL VIEW; fields of structs by star.
-- literal: t (id INT, at TIMESTAMP, tags ARRAY<STRING>, items ARRAY<STRUCT<sku: STRING, n: INT>>, m MAP<STRING, INT>, s STRUCT<a: INT, b: STRUCT<c: STRING>>)
-- {"id": 1, "at": "2024-01-01T00:00:00Z", "tags": ["x", null, "y"], "items": [{"sku": "p", "n": 2}, null], "m": {"k": 1}, "s": {"a": 1, "b": {"c": "z"}}}
-- {"id": 2, "at": "2024-01-01T00:01:00Z", "tags": [], "items": [], "m": {}, "s": {"a": null, "b": null}}
-- {"id": 3, "at": "2024-01-01T00:02:00Z", "tags": null, "items": null, "m": null, "s": null}
-- {"id": 4, "at": "2024-01-01T00:03:00Z", "tags": ["w"], "items": [{"sku": null, "n": 5}], "m": {"k": 3, "l": 4}, "s": {"a": 4, "b": {"c": "q"}}}
CREATE TABLE two WITH (connector = 'filesystem', path = '$output/two', format = 'parquet', type = 'sink');
CREATE TABLE three WITH (connector = 'filesystem', path = '$output/three', format = 'parquet', type = 'sink');
CREATE TABLE four WITH (connector = 'filesystem', path = '$output/four', format = 'parquet', type = 'sink');
INSERT INTO output SELECT id, posexplode(tags) FROM t WHERE id <> 4;
INSERT INTO output SELECT id, posexplode_outer(tags) AS (pos, col) FROM t;
INSERT INTO two SELECT inline(items), id FROM t;
INSERT INTO two SELECT i.sku, i.n, id FROM t LATERAL VIEW OUTER inline(items) i;
INSERT INTO two SELECT sku, n, id FROM t LATERAL VIEW inline_outer(from_json(to_json(items), 'ARRAY<STRUCT<sku: STRING, n: INT>>')) i AS sku, n;
INSERT INTO three SELECT id, place, name, amount FROM t LATERAL VIEW posexplode(m) e AS place, name, amount;
INSERT INTO three SELECT id, NULL AS place, key AS name, value AS amount FROM t LATERAL VIEW explode(m) e;
INSERT INTO four SELECT id, s.*, t.s.b.* FROM t;

-- expect output
SELECT id, posexplode(tags) FROM t WHERE id <> 4
UNION ALL
SELECT id, posexplode_outer(tags) FROM t

-- expect two
SELECT inline(items), id FROM t
UNION ALL
SELECT inline_outer(items), id FROM t
UNION ALL
SELECT inline_outer(items), id FROM t

-- expect three
SELECT id, posexplode(m) FROM t
UNION ALL
SELECT id, NULL, explode(m) FROM t

-- expect four
SELECT id, s.*, s.b.* FROM t
