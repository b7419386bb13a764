-- Inner join of two windowed aggregates on the same window and key.
-- input: orders
-- input: payments
INSERT INTO output
SELECT o.window.start AS ordered, p.window.start AS paid, o.customer, p.customer AS payer, o.n, p.n AS payments FROM
    (SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM orders GROUP BY window, customer) o
    JOIN
    (SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM payments GROUP BY window, customer) p
    ON o.window = p.window AND o.customer = p.customer;

-- expect output
SELECT o.w.start, p.w.start, o.customer, p.customer, o.n, p.n FROM
    (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer) o
    JOIN
    (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY window(at, '5 minutes'), customer) p
    ON o.w = p.w AND o.customer = p.customer
