-- A stream against an updating aggregate: every row is corrected when the aggregate changes.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, o.amount, p.n FROM orders o
JOIN (SELECT customer, count(*) AS n FROM payments GROUP BY customer) p ON o.customer = p.customer;

-- expect output
SELECT o.id, o.amount, p.n FROM orders o
JOIN (SELECT customer, count(*) AS n FROM payments GROUP BY customer) p ON o.customer = p.customer
