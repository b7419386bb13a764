-- Grouped by the window of a side that may be missing: rows without it are of all windows.
-- input: orders
-- input: payments
-- sink: changelog
CREATE VIEW o AS SELECT tumble('1 minute') AS w, customer, count(*) AS n FROM orders GROUP BY 1, 2;
CREATE VIEW p AS SELECT tumble('1 minute') AS w, customer, count(*) AS n FROM payments GROUP BY 1, 2;
INSERT INTO output
SELECT o.w.start AS start, count(*) AS c, sum(p.n) AS paid
FROM o FULL JOIN p ON o.w = p.w AND o.customer = p.customer GROUP BY o.w;

-- expect output
WITH o AS (SELECT window(at, '1 minute') AS w, customer, count(*) AS n FROM orders GROUP BY 1, 2),
    p AS (SELECT window(at, '1 minute') AS w, customer, count(*) AS n FROM payments GROUP BY 1, 2)
SELECT o.w.start AS start, count(*) AS c, sum(p.n) AS paid
FROM o FULL JOIN p ON o.w = p.w AND o.customer = p.customer GROUP BY o.w
