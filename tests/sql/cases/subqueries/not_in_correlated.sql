-- A correlated NOT IN with nulls on both sides: one null among what it is compared with, and it is not true.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT id, customer FROM orders o WHERE id NOT IN (SELECT order_id FROM payments p WHERE p.customer = o.customer)
UNION ALL
SELECT -id, customer FROM orders o
WHERE (o.amount % 3, id) NOT IN (SELECT length(method) % 3, order_id FROM payments p WHERE p.customer = o.customer)
UNION ALL
SELECT -id, customer FROM orders WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.customer = orders.customer AND p.order_id = id);

-- expect output
SELECT id, customer FROM orders o WHERE id NOT IN (SELECT order_id FROM payments p WHERE p.customer = o.customer)
UNION ALL
SELECT -id, customer FROM orders o
WHERE (o.amount % 3, id) NOT IN (SELECT length(method) % 3, order_id FROM payments p WHERE p.customer = o.customer)
UNION ALL
SELECT -id, customer FROM orders WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.customer = orders.customer AND p.order_id = id)
