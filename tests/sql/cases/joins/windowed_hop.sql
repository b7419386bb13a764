-- A join of windows that overlap.
-- input: orders
-- input: payments
INSERT INTO output
SELECT o.window.start AS start, o.n, p.n AS payments FROM
    (SELECT hop(INTERVAL '2 minutes', INTERVAL '6 minutes') AS window, count(*) AS n FROM orders GROUP BY window) o
    JOIN (SELECT hop(INTERVAL '2 minutes', INTERVAL '6 minutes') AS window, count(*) AS n FROM payments GROUP BY window) p
    ON o.window = p.window;

-- expect output
SELECT o.w.start, o.n, p.n FROM
    (SELECT window(at, '6 minutes', '2 minutes') AS w, count(*) AS n FROM orders GROUP BY window(at, '6 minutes', '2 minutes')) o
    JOIN (SELECT window(at, '6 minutes', '2 minutes') AS w, count(*) AS n FROM payments GROUP BY window(at, '6 minutes', '2 minutes')) p
    ON o.w = p.w
