-- A top-1 over a join of windows.
-- input: orders
-- input: payments
INSERT INTO output
SELECT start, customer, both FROM (
    SELECT o.window.start AS start, o.customer, o.n + p.n AS both,
        row_number() OVER (PARTITION BY o.window ORDER BY o.n + p.n DESC, o.customer) AS place
    FROM (SELECT tumble(INTERVAL '10 minutes') AS window, customer, count(*) AS n FROM orders GROUP BY window, customer) o
    JOIN (SELECT tumble(INTERVAL '10 minutes') AS window, customer, count(*) AS n FROM payments GROUP BY window, customer) p
    ON o.window = p.window AND o.customer = p.customer)
WHERE place = 1;

-- expect output
SELECT start, customer, both FROM (
    SELECT o.w.start AS start, o.customer, o.n + p.n AS both,
        row_number() OVER (PARTITION BY o.w ORDER BY o.n + p.n DESC, o.customer) AS place
    FROM (SELECT window(at, '10 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '10 minutes'), customer) o
    JOIN (SELECT window(at, '10 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY window(at, '10 minutes'), customer) p
    ON o.w = p.w AND o.customer = p.customer)
WHERE place = 1
