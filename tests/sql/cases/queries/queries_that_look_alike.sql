-- Queries that differ in an unread column, or in a column named beside a backquote, are not the same.
-- input: clicks
CREATE TABLE plain WITH (connector = 'filesystem', path = '$output/plain', format = 'parquet', type = 'sink');
CREATE TABLE one WITH (connector = 'filesystem', path = '$output/one', format = 'parquet', type = 'sink');
CREATE TABLE other WITH (connector = 'filesystem', path = '$output/other', format = 'parquet', type = 'sink');
INSERT INTO plain SELECT window.start, count(*) AS n FROM (SELECT at, person FROM clicks) GROUP BY tumble('10 minutes');
INSERT INTO output SELECT window.start, count(*) AS n FROM (SELECT at, explode(tags) AS tag FROM clicks) GROUP BY tumble('10 minutes');
INSERT INTO one SELECT window.start, sum(CASE WHEN person <> '`' THEN v END) AS s
FROM (SELECT at, person, device.version AS v FROM clicks) GROUP BY tumble('10 minutes');
INSERT INTO other SELECT window.start, sum(CASE WHEN person <> '`' THEN v END) AS s
FROM (SELECT at, person, CAST(body->>'n' AS INT) AS v FROM clicks) GROUP BY tumble('10 minutes');

-- expect plain
SELECT window.start, count(*) AS n FROM clicks GROUP BY window(at, '10 minutes')

-- expect output
SELECT window.start, count(*) AS n FROM (SELECT at, explode(tags) AS tag FROM clicks) GROUP BY window(at, '10 minutes')

-- expect one
SELECT window.start, sum(IF(person IS NOT NULL, device.version, NULL)) AS s FROM clicks GROUP BY window(at, '10 minutes')

-- expect other
SELECT window.start, sum(IF(person IS NOT NULL, CAST(get_json_object(body, '$.n') AS INT), NULL)) AS s FROM clicks GROUP BY window(at, '10 minutes')
