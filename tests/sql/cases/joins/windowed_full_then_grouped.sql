-- After a full join coalesce() of both windows is the window.
-- input: orders
-- input: payments
-- input: rides 150
CREATE VIEW o AS SELECT tumble('2 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY 1, 2;
CREATE VIEW p AS SELECT tumble('2 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY 1, 2;
CREATE VIEW r AS SELECT tumble('2 minutes') AS w, driver, count(*) AS n FROM rides GROUP BY 1, 2;
INSERT INTO output
SELECT coalesce(o.w.start, p.w.start, r.w.start) AS start, count(*) AS c, sum(p.n) AS paid, sum(r.n) AS driven,
    max(sum(o.n)) OVER (PARTITION BY coalesce(o.w.start, p.w.start, r.w.start)) AS ordered
FROM o FULL JOIN p ON o.w = p.w AND o.customer = p.customer
FULL JOIN r ON coalesce(o.w, p.w) = r.w AND r.driver = coalesce(o.customer, p.customer)
GROUP BY 1;

-- expect output
WITH o AS (SELECT window(at, '2 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY 1, 2),
    p AS (SELECT window(at, '2 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY 1, 2),
    r AS (SELECT window(at, '2 minutes') AS w, driver, count(*) AS n FROM rides GROUP BY 1, 2)
SELECT coalesce(o.w.start, p.w.start, r.w.start) AS start, count(*) AS c, sum(p.n) AS paid, sum(r.n) AS driven, sum(o.n) AS ordered
FROM o FULL JOIN p ON o.w = p.w AND o.customer = p.customer
FULL JOIN r ON coalesce(o.w, p.w) = r.w AND r.driver = coalesce(o.customer, p.customer)
GROUP BY 1
