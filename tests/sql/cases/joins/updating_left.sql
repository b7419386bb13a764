-- Left join of two streams without a window.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, o.amount, p.order_id, p.method FROM orders o LEFT JOIN payments p ON o.id = p.order_id;

-- expect output
SELECT o.id, o.amount, p.order_id, p.method FROM orders o LEFT JOIN payments p ON o.id = p.order_id
