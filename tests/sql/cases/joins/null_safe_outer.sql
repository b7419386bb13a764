-- Outer joins by a null-safe key: null is a value like any other.
-- input: orders 60
-- input: payments 60
-- sink: changelog
INSERT INTO output SELECT o.id, o.customer, p.order_id, p.method
FROM orders o FULL JOIN payments p ON o.customer IS NOT DISTINCT FROM p.customer AND o.id = p.order_id;

-- expect output
SELECT o.id, o.customer, p.order_id, p.method
FROM orders o FULL JOIN payments p ON o.customer <=> p.customer AND o.id = p.order_id
