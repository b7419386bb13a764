-- Spark's own functions of JSON.
-- input: clicks
INSERT INTO output
SELECT get_json_object(body, '$.who.name') AS name, from_json(body, 'n INT, who STRUCT<name: STRING>').n AS n FROM clicks;

-- expect output
SELECT get_json_object(body, '$.who.name'), from_json(body, 'n INT, who STRUCT<name: STRING>').n FROM clicks
