-- IN and EXISTS over a lookup table keep nothing.
-- input: orders
-- lookup: people (id BIGINT, name TEXT, rank INT)
-- {"id": 1, "name": "ann", "rank": 1}
-- {"id": 2, "name": "bob", "rank": 2}
-- {"id": null, "name": "nobody", "rank": 1}
-- {"id": 2, "name": "bo", "rank": 1}
CREATE TEMPORARY TABLE people (id BIGINT, name TEXT, rank INT)
WITH (connector = 'filesystem', path = '$input/people', format = 'parquet', type = 'lookup');
INSERT INTO output
SELECT id, customer, 'in' AS test FROM orders WHERE customer IN (SELECT id FROM people)
UNION ALL SELECT id, customer, 'pair' FROM orders WHERE (customer, 1) IN (SELECT p.id, p.rank FROM people p WHERE name <> 'ann')
UNION ALL SELECT id, customer, 'exists' FROM orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.customer AND rank > 1)
UNION ALL SELECT id, customer, 'not exists' FROM orders WHERE NOT EXISTS (SELECT * FROM people p WHERE p.id = customer)
UNION ALL SELECT id, customer, 'not in' FROM orders WHERE customer IS NOT NULL AND customer NOT IN (SELECT id FROM people WHERE id IS NOT NULL);

-- expect output
SELECT id, customer, 'in' AS test FROM orders WHERE customer IN (SELECT id FROM people)
UNION ALL SELECT id, customer, 'pair' FROM orders WHERE (customer, 1) IN (SELECT p.id, p.rank FROM people p WHERE name <> 'ann')
UNION ALL SELECT id, customer, 'exists' FROM orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.customer AND rank > 1)
UNION ALL SELECT id, customer, 'not exists' FROM orders WHERE NOT EXISTS (SELECT * FROM people p WHERE p.id = customer)
UNION ALL SELECT id, customer, 'not in' FROM orders WHERE customer IS NOT NULL AND customer NOT IN (SELECT id FROM people WHERE id IS NOT NULL)
