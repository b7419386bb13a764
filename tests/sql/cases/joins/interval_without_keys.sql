-- What happened in the second before: no columns must be equal.
-- input: orders 60
-- input: payments 60
INSERT INTO output
SELECT o.id, p.order_id FROM orders o JOIN payments p ON o.at BETWEEN p.at - INTERVAL '1 second' AND p.at;

-- expect output
SELECT o.id, p.order_id FROM orders o JOIN payments p ON o.at BETWEEN p.at - INTERVAL '1' SECOND AND p.at
