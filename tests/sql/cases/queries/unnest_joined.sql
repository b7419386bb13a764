-- UNNEST with a condition, and with rows that have no elements.
-- input: clicks
CREATE TABLE chosen WITH (connector = 'filesystem', path = '$output/chosen', format = 'parquet', type = 'sink');
INSERT INTO chosen SELECT person, tag FROM clicks JOIN UNNEST(tags) AS t(tag) ON tag = 'x';
INSERT INTO output SELECT person, tag FROM clicks LEFT JOIN UNNEST(tags) AS t(tag) ON true;

-- expect chosen
SELECT person, tag FROM clicks LATERAL VIEW explode(tags) AS tag WHERE tag = 'x'

-- expect output
SELECT person, tag FROM clicks LATERAL VIEW OUTER explode(tags) AS tag
