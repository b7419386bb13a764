-- Rows of two sources straight to a sink; one of them is filtered.
-- input: orders
-- input: payments
INSERT INTO output
SELECT id, customer, 'order' AS kind FROM orders
UNION ALL
SELECT order_id, customer, method FROM payments WHERE order_id IS NOT NULL
UNION ALL
SELECT id, NULL, 'again' FROM orders WHERE amount > 400;

-- expect output
SELECT id, customer, 'order' AS kind FROM orders
UNION ALL SELECT order_id, customer, method FROM payments WHERE order_id IS NOT NULL
UNION ALL SELECT id, NULL, 'again' FROM orders WHERE amount > 400
