-- Joins written with commas: what WHERE says of both sides is their condition.
-- input: orders
-- input: payments
-- lookup: people (id BIGINT, name TEXT)
-- {"id": 1, "name": "ann"}
-- {"id": 2, "name": "bob"}
-- {"id": 2, "name": "bea"}
CREATE TEMPORARY TABLE people (id BIGINT PRIMARY KEY, name TEXT)
WITH (connector = 'filesystem', path = '$input/people', format = 'parquet', type = 'lookup');
CREATE TABLE by_window WITH (connector = 'filesystem', path = '$output/by_window', format = 'parquet', type = 'sink');
CREATE VIEW o AS SELECT tumble('2 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY 1, 2;
CREATE VIEW p AS SELECT tumble('2 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY 1, 2;
INSERT INTO by_window
SELECT o.w.start AS start, o.customer, o.n, p.n AS m, x.t
FROM o, p, (SELECT w, sum(n) AS t FROM o GROUP BY w) x
WHERE o.w = p.w AND o.customer = p.customer AND x.w = p.w AND o.n + p.n > 1;
INSERT INTO output
SELECT o.id, p.name, q.method FROM orders o, people p CROSS JOIN payments q
WHERE o.customer = p.id AND q.order_id = o.id
    AND q.at BETWEEN o.at - INTERVAL '1 minute' AND o.at + INTERVAL '1 minute' AND (o.amount > 50 OR q.method IS NULL);

-- expect by_window
WITH o AS (SELECT window(at, '2 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY 1, 2),
    p AS (SELECT window(at, '2 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY 1, 2)
SELECT o.w.start AS start, o.customer, o.n, p.n AS m, x.t
FROM o, p, (SELECT w, sum(n) AS t FROM o GROUP BY w) x
WHERE o.w = p.w AND o.customer = p.customer AND x.w = p.w AND o.n + p.n > 1

-- expect output
SELECT o.id, p.name, q.method FROM orders o, people p CROSS JOIN payments q
WHERE o.customer = p.id AND q.order_id = o.id
    AND q.at BETWEEN o.at - INTERVAL '1' MINUTE AND o.at + INTERVAL '1' MINUTE AND (o.amount > 50 OR q.method IS NULL)
