-- Two updating aggregates.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.customer, p.customer AS payer, o.total, p.n FROM
    (SELECT customer, sum(amount) AS total FROM orders GROUP BY customer) o
    FULL OUTER JOIN (SELECT customer, count(*) AS n FROM payments GROUP BY customer) p ON o.customer = p.customer;

-- expect output
SELECT o.customer, p.customer AS payer, o.total, p.n FROM
    (SELECT customer, sum(amount) AS total FROM orders GROUP BY customer) o
    FULL OUTER JOIN (SELECT customer, count(*) AS n FROM payments GROUP BY customer) p ON o.customer = p.customer
