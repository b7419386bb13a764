-- Both sides may be alone; the interval lies wholly on one side.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, p.order_id, p.method FROM orders o FULL JOIN payments p
    ON o.customer = p.customer AND o.at + INTERVAL '30 seconds' <= p.at AND p.at - INTERVAL '1 minute' < o.at;

-- expect output
SELECT o.id, p.order_id, p.method FROM orders o FULL JOIN payments p
    ON o.customer = p.customer AND o.at + INTERVAL '30' SECOND <= p.at AND p.at - INTERVAL '1' MINUTE < o.at
