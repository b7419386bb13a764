-- The operators and functions of JSON over a text.
-- input: clicks
INSERT INTO output
SELECT body->>'n' AS n, body->'who'->>'name' AS name, extract_json_string(body, '$.who.name') AS name_again,
    CAST(json_get_int(body, 'n') AS BIGINT) AS number
FROM clicks;

-- expect output
SELECT get_json_object(body, '$.n'), get_json_object(body, '$.who.name'), get_json_object(body, '$.who.name'),
    CAST(get_json_object(body, '$.n') AS BIGINT)
FROM clicks
