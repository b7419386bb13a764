-- IN and NOT IN over several columns.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT id, customer, amount FROM orders WHERE (id, customer) IN (SELECT order_id, customer FROM payments)
UNION ALL
SELECT -id, customer, amount FROM orders WHERE id IS NOT NULL AND customer IS NOT NULL
    AND (id, customer) NOT IN (SELECT order_id, customer FROM payments WHERE order_id IS NOT NULL AND customer IS NOT NULL);

-- expect output
SELECT id, customer, amount FROM orders WHERE (id, customer) IN (SELECT order_id, customer FROM payments)
UNION ALL
SELECT -id, customer, amount FROM orders WHERE id IS NOT NULL AND customer IS NOT NULL
    AND (id, customer) NOT IN (SELECT order_id, customer FROM payments WHERE order_id IS NOT NULL AND customer IS NOT NULL)
