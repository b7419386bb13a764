-- A join on two keys with a condition beside them.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, p.method FROM orders o LEFT JOIN payments p
    ON o.id = p.order_id AND o.customer = p.customer AND o.amount > 100 AND p.method IS NOT NULL;

-- expect output
SELECT o.id, p.method FROM orders o LEFT JOIN payments p
    ON o.id = p.order_id AND o.customer = p.customer AND o.amount > 100 AND p.method IS NOT NULL
