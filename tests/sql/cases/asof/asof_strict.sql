-- A match that must be older, at equal instants and with nulls as keys; without LEFT, a row without a match goes.
-- literal: a (at TIMESTAMP, k BIGINT, x TEXT)
-- {"at": "2024-01-01T00:00:01", "k": 1, "x": "a1"}
-- {"at": "2024-01-01T00:00:02", "k": 1, "x": "a2"}
-- {"at": "2024-01-01T00:00:02", "k": null, "x": "a3"}
-- {"at": "2024-01-01T00:00:05", "k": 1, "x": "a4"}
-- {"at": "2024-01-01T00:00:04", "k": 2, "x": "a5"}
-- {"at": "2024-01-01T00:00:09", "k": null, "x": "a6"}
-- {"at": "2024-01-01T00:00:09", "k": 3, "x": "a7"}
-- literal: b (at TIMESTAMP, k INT, y TEXT, tags MAP<TEXT, TEXT>)
-- {"at": "2024-01-01T00:00:01", "k": 1, "y": "b1", "tags": {"a": "1"}}
-- {"at": "2024-01-01T00:00:02", "k": 1, "y": "b2", "tags": {"a": "2"}}
-- {"at": "2024-01-01T00:00:02", "k": 1, "y": "b2", "tags": {"a": "3"}}
-- {"at": "2024-01-01T00:00:01", "k": null, "y": "b3"}
-- {"at": "2024-01-01T00:00:05", "k": 2, "y": "b4"}
-- {"at": "2024-01-01T00:00:08", "k": 3, "y": "b5"}
-- delay: 2 seconds
CREATE TABLE safe WITH (connector = 'filesystem', path = '$output/safe', format = 'parquet', type = 'sink');
CREATE TABLE snowflake WITH (connector = 'filesystem', path = '$output/snowflake', format = 'parquet', type = 'sink');
INSERT INTO output SELECT a.x, b.y, b.tags['a'] AS tag FROM a ASOF JOIN b ON a.k = b.k AND b.at < a.at;
INSERT INTO safe SELECT a.x, b.y FROM a ASOF JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.at > b.at;
INSERT INTO snowflake SELECT a.x, b.y FROM a ASOF JOIN b MATCH_CONDITION (a.at >= b.at) ON a.k = b.k;

-- expect output
SELECT * FROM VALUES ('a2', 'b1', '1'), ('a4', 'b2', '3'), ('a7', 'b5', NULL)
-- expect safe
SELECT * FROM VALUES ('a2', 'b1'), ('a3', 'b3'), ('a4', 'b2'), ('a6', 'b3'), ('a7', 'b5')
-- expect snowflake
SELECT * FROM VALUES ('a1', 'b1'), ('a2', 'b2'), ('a3', NULL), ('a4', 'b2'), ('a5', NULL), ('a6', NULL), ('a7', 'b5')
