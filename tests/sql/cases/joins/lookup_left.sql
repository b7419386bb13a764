-- A stream against a table at rest; rows without a match stay.
-- input: orders
-- lookup: people (id BIGINT, name TEXT)
-- {"id": 1, "name": "ann"}
-- {"id": 2, "name": "bob"}
-- {"id": 9, "name": "zoe"}
CREATE TEMPORARY TABLE people (id BIGINT PRIMARY KEY, name TEXT)
WITH (connector = 'filesystem', path = '$input/people', format = 'parquet', type = 'lookup');
INSERT INTO output SELECT o.id, o.customer, p.name FROM orders o LEFT JOIN people p ON o.customer = p.id;

-- expect output
SELECT o.id, o.customer, p.name FROM orders o LEFT JOIN people p ON o.customer = p.id
