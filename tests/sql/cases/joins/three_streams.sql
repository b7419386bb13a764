-- Two joins, one after the other.
-- input: orders
-- input: payments
-- input: skewed
-- sink: changelog
INSERT INTO output
SELECT o.id, p.method, s.value FROM orders o
JOIN payments p ON o.id = p.order_id
JOIN (SELECT key, value FROM skewed WHERE key > 0) s ON p.customer = s.key;

-- expect output
SELECT o.id, p.method, s.value FROM orders o JOIN payments p ON o.id = p.order_id
JOIN (SELECT key, value FROM skewed WHERE key > 0) s ON p.customer = s.key
