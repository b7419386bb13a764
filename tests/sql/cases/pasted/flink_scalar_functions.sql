-- Flink: FLOOR and CEIL to units of time, JSON_VALUE with a type and defaults, LIKE ANY, a join hint.
-- literal: t (id INT, at TIMESTAMP, j STRING)
-- {"id": 1, "at": "2024-02-29T23:59:59.999999Z", "j": "{\"a\": 7, \"s\": \"x\", \"b\": true}"}
-- {"id": 2, "at": "2024-03-01T00:00:00Z", "j": "{\"a\": \"7\", \"s\": null, \"b\": {\"c\": 1}}"}
-- {"id": 3, "at": "2024-03-31T00:00:00.000001Z", "j": "{\"a\": \"seven\", \"b\": [1]}"}
-- {"id": 4, "at": "2024-12-31T12:30:00Z", "j": "{broken"}
-- {"id": 5, "at": "2025-01-01T00:00:00Z", "j": null}
INSERT INTO output
SELECT /*+ BROADCAST(t) */ id,
       FLOOR(at TO HOUR) AS hour, CEIL(at TO HOUR) AS next_hour,
       FLOOR(at TO MONTH) AS month, CEIL(at TO MONTH) AS next_month, CEIL(at TO QUARTER) AS next_quarter,
       FLOOR(2.5 * id) AS floored, CEIL(id / 2) AS ceiled,
       JSON_VALUE(j, '$.a' RETURNING INT) AS a,
       JSON_VALUE(j, 'lax $.a' RETURNING INT DEFAULT 0 ON EMPTY DEFAULT -1 ON ERROR) AS a_or,
       JSON_VALUE(j, '$.s' DEFAULT 'none' ON EMPTY) AS s,
       JSON_VALUE(j, '$.b') AS b,
       j LIKE ANY ('%seven%', '%x%') AS some_match, j NOT LIKE ALL ('%seven%', '%x%') AS none_matches
FROM t;

-- expect output
SELECT id, date_trunc('HOUR', at),
       CASE WHEN date_trunc('HOUR', at) = at THEN at ELSE date_trunc('HOUR', at) + INTERVAL 1 HOUR END,
       date_trunc('MONTH', at),
       CASE WHEN date_trunc('MONTH', at) = at THEN at ELSE date_trunc('MONTH', at) + INTERVAL 1 MONTH END,
       CASE WHEN date_trunc('QUARTER', at) = at THEN at ELSE date_trunc('QUARTER', at) + INTERVAL 3 MONTH END,
       floor(2.5 * id), ceil(id / 2),
       element_at(map(1, 7, 2, 7), id), element_at(map(1, 7, 2, 7, 3, -1, 4, -1), id),
       element_at(map(1, 'x', 2, 'none', 3, 'none'), id), element_at(map(1, 'true'), id),
       j LIKE ANY ('%seven%', '%x%'), j NOT LIKE ALL ('%seven%', '%x%')
FROM t
