-- Orders that were not paid; they go when a payment comes.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, o.amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id);

-- expect output
SELECT o.id, o.amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)
