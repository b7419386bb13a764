-- An updating aggregate over an updating join.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT p.method, count(*) AS n, sum(o.amount) AS total FROM orders o LEFT JOIN payments p ON o.id = p.order_id GROUP BY p.method;

-- expect output
SELECT p.method, count(*) AS n, sum(o.amount) AS total FROM orders o LEFT JOIN payments p ON o.id = p.order_id GROUP BY p.method
