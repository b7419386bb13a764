-- Payments within five minutes of their order, as an append-only stream.
-- input: orders
-- input: payments
INSERT INTO output
SELECT o.id, o.at, p.at AS paid FROM orders o JOIN payments p
    ON o.id = p.order_id AND p.at BETWEEN o.at - INTERVAL '1 minute' AND o.at + INTERVAL '5 minutes';

-- expect output
SELECT o.id, o.at, p.at AS paid FROM orders o JOIN payments p
    ON o.id = p.order_id AND p.at BETWEEN o.at - INTERVAL '1' MINUTE AND o.at + INTERVAL '5' MINUTE
