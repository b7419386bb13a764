-- Orders that were paid, by IN.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output SELECT id, amount FROM orders WHERE id IN (SELECT order_id FROM payments WHERE method = 'card');

-- expect output
SELECT id, amount FROM orders WHERE id IN (SELECT order_id FROM payments WHERE method = 'card')
