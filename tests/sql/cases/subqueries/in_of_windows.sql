-- IN and NOT IN among the rows of the same window: nothing is kept, and the rows can be grouped again.
-- input: orders
-- input: payments
CREATE TABLE without WITH (connector = 'filesystem', path = '$output/without', format = 'parquet', type = 'sink');
CREATE VIEW o AS SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM orders GROUP BY window, customer;
CREATE VIEW p AS SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM payments GROUP BY window, customer;
INSERT INTO output
SELECT window.start AS start, count(*) AS customers, sum(n) AS orders FROM o
WHERE (window, customer) IN (SELECT window, customer FROM p WHERE n > 1) GROUP BY window;
INSERT INTO without
SELECT window.start AS start, customer, n FROM o
WHERE customer NOT IN (SELECT customer FROM p WHERE p.window = o.window AND p.n > 1);

-- expect output
WITH o AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer),
     p AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY window(at, '5 minutes'), customer)
SELECT w.start, count(*), sum(n) FROM o WHERE (w, customer) IN (SELECT w, customer FROM p WHERE n > 1) GROUP BY w
-- expect without
WITH o AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer),
     p AS (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY window(at, '5 minutes'), customer)
SELECT w.start, customer, n FROM o WHERE customer NOT IN (SELECT customer FROM p WHERE p.w = o.w AND p.n > 1)
