-- Orders that were paid, by EXISTS.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, o.amount FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id);

-- expect output
SELECT o.id, o.amount FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)
