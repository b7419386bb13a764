-- Scalar subqueries over the rows of the same window: in the select list, in WHERE, in an expression.
-- input: orders
-- input: payments
CREATE TABLE best WITH (connector = 'filesystem', path = '$output/best', format = 'parquet', type = 'sink');
CREATE TABLE everything WITH (connector = 'filesystem', path = '$output/everything', format = 'parquet', type = 'sink');
CREATE VIEW o AS SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM orders GROUP BY window, customer;
CREATE VIEW p AS SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM payments GROUP BY window, customer;
INSERT INTO output
SELECT window.start AS start, customer, n, (SELECT max(p.n) FROM p WHERE p.window = o.window) AS most,
    o.n * 100 / (SELECT sum(n) FROM o AS every WHERE every.window = o.window) AS share,
    (SELECT count(*) FROM p WHERE window = o.window AND n > o.n) AS above,
    (SELECT n FROM p WHERE p.window = o.window AND p.customer IS NOT DISTINCT FROM o.customer) AS paid
FROM o;
INSERT INTO best
SELECT window.end AS at, count(*) AS winners, min(customer) AS first FROM o
WHERE n = (SELECT max(n) FROM o AS i WHERE i.window = o.window) AND n > 1 GROUP BY window;
INSERT INTO everything
SELECT *, (SELECT count(DISTINCT customer) FILTER (WHERE n > 1) FROM p WHERE p.window.end = o.window.end) FROM o;

-- expect output
WITH o AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer),
     p AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY window(at, '5 minutes'), customer)
SELECT o.w.start, o.customer, o.n, (SELECT max(p.n) FROM p WHERE p.w = o.w) AS most,
    o.n * 100 / (SELECT sum(n) FROM o AS every WHERE every.w = o.w) AS share,
    (SELECT count(*) FROM p WHERE p.w = o.w AND p.n > o.n) AS above, paid.n
FROM o LEFT JOIN p AS paid ON paid.w = o.w AND paid.customer <=> o.customer
-- expect best
WITH o AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer)
SELECT w.end, count(*), min(customer) FROM (SELECT *, max(n) OVER (PARTITION BY w) AS m FROM o) WHERE n = m AND n > 1 GROUP BY w
-- expect everything
WITH o AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer),
     p AS (SELECT window(at, '5 minutes') AS w, count(DISTINCT customer) AS m FROM
        (SELECT window(at, '5 minutes') AS w, at, customer, count(*) OVER (PARTITION BY window(at, '5 minutes'), customer) AS n FROM payments)
        WHERE n > 1 GROUP BY window(at, '5 minutes'))
SELECT o.*, coalesce(m, 0) FROM o LEFT JOIN p ON o.w = p.w
