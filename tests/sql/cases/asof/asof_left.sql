-- ASOF LEFT JOIN: the newest payment of the customer up to the time of the order; of several at one instant, the greatest.
-- input: orders
-- input: payments
INSERT INTO output
SELECT o.id, o.customer, p.order_id, p.method, p.at AS paid
FROM orders o ASOF LEFT JOIN payments p ON o.customer = p.customer AND o.at >= p.at;

-- expect output
SELECT id, customer, m.order_id, m.method, m.at FROM (
    SELECT o.*, (SELECT max(struct(p.at, p.order_id, p.customer, p.method)) FROM payments p WHERE p.customer = o.customer AND p.at <= o.at) AS m
    FROM orders o)
