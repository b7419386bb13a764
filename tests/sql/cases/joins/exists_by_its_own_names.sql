-- A bare name in EXISTS means a column of its own before one of the query around it.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT id FROM orders o
WHERE EXISTS (SELECT 1 FROM payments WHERE customer = o.customer AND order_id > o.id AND method = 'card' ORDER BY at LIMIT 1)
    AND NOT EXISTS (SELECT * FROM payments WHERE order_id = id AND at < o.at);

-- expect output
SELECT id FROM orders o
WHERE EXISTS (SELECT 1 FROM payments WHERE customer = o.customer AND order_id > o.id AND method = 'card')
    AND NOT EXISTS (SELECT * FROM payments p WHERE p.order_id = o.id AND p.at < o.at)
