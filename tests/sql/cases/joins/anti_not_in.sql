-- NOT IN over values that are not null: an anti join.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT id, amount FROM orders
WHERE id IS NOT NULL AND id NOT IN (SELECT order_id FROM payments WHERE order_id IS NOT NULL AND method = 'card');

-- expect output
SELECT id, amount FROM orders
WHERE id IS NOT NULL AND id NOT IN (SELECT order_id FROM payments WHERE order_id IS NOT NULL AND method = 'card')
