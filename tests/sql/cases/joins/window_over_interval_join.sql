-- A window over joined rows: their event time is the later of the two.
-- input: orders
-- input: payments
INSERT INTO output
SELECT window.start AS start, method, n, total FROM (
    SELECT tumble(INTERVAL '1 minute') AS window, p.method, count(*) AS n, sum(o.amount) AS total
    FROM orders o JOIN payments p
        ON o.customer = p.customer AND p.at BETWEEN o.at - INTERVAL '5 seconds' AND o.at + INTERVAL '20 seconds'
    GROUP BY window, p.method);

-- expect output
SELECT window.start AS start, method, n, total FROM (
    SELECT window(greatest(o.at, p.at), '1 minute') AS window, p.method, count(*) AS n, sum(o.amount) AS total
    FROM orders o JOIN payments p
        ON o.customer = p.customer AND p.at BETWEEN o.at - INTERVAL '5' SECOND AND o.at + INTERVAL '20' SECOND
    GROUP BY window, p.method)
