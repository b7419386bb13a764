-- Orders that were not paid in time are there as well, until a payment comes.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT o.id, o.at, p.at AS paid FROM orders o LEFT JOIN payments p
    ON o.id = p.order_id AND p.at >= o.at - INTERVAL '10 seconds' AND p.at < o.at + INTERVAL '40 seconds';

-- expect output
SELECT o.id, o.at, p.at AS paid FROM orders o LEFT JOIN payments p
    ON o.id = p.order_id AND p.at >= o.at - INTERVAL '10' SECOND AND p.at < o.at + INTERVAL '40' SECOND
