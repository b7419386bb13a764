-- Scalar subqueries over a lookup table: the one row, an aggregate of several, one that is about no row in particular.
-- input: orders
-- lookup: people (id BIGINT, name TEXT)
-- {"id": 1, "name": "ann"}
-- {"id": 2, "name": "bob"}
-- {"id": 9, "name": "zoe"}
-- lookup: rates (customer BIGINT, rate BIGINT)
-- {"customer": 1, "rate": 5}
-- {"customer": 1, "rate": 7}
-- {"customer": 3, "rate": 1}
CREATE TEMPORARY TABLE people (id BIGINT, name TEXT)
WITH (connector = 'filesystem', path = '$input/people', format = 'parquet', type = 'lookup');
CREATE TEMPORARY TABLE rates (customer BIGINT, rate BIGINT)
WITH (connector = 'filesystem', path = '$input/rates', format = 'parquet', type = 'lookup');
CREATE TABLE grouped WITH (connector = 'filesystem', path = '$output/grouped', format = 'parquet', type = 'sink');
INSERT INTO output
SELECT id, customer, (SELECT upper(name) FROM people WHERE people.id = o.customer) AS name,
    coalesce((SELECT max(rate) FROM rates r WHERE r.customer = o.customer), 0) + amount AS total,
    (SELECT count(*) FROM rates WHERE customer = o.customer AND rate < o.amount % 10) AS below,
    (SELECT max(rate) FROM rates) AS highest
FROM orders o WHERE amount > (SELECT sum(rate) FROM rates);
INSERT INTO grouped
SELECT window.start AS start, name, count(*) AS n FROM
    (SELECT at, (SELECT name FROM people WHERE people.id = orders.customer) AS name FROM orders)
GROUP BY tumble(INTERVAL '5 minutes'), name;

-- expect output
SELECT o.id, o.customer, upper(p.name), coalesce(r.rate, 0) + amount, (SELECT count(*) FROM rates WHERE rates.customer = o.customer AND rate < o.amount % 10), 7L
FROM orders o LEFT JOIN people p ON p.id = o.customer
LEFT JOIN (SELECT customer, max(rate) AS rate FROM rates GROUP BY customer) r ON r.customer = o.customer
WHERE amount > 13
-- expect grouped
SELECT window(at, '5 minutes').start, name, count(*) FROM orders LEFT JOIN people ON people.id = orders.customer
GROUP BY window(at, '5 minutes'), name
