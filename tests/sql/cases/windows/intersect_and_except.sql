-- INTERSECT and EXCEPT of closed windows: nulls are equal, and each row comes once.
-- input: orders
-- input: payments
CREATE VIEW ordered AS
SELECT window, customer, count(*) AS n FROM orders
GROUP BY tumble(INTERVAL '10 minutes'), customer, id % 2;

CREATE VIEW paid AS
SELECT window, customer FROM payments GROUP BY tumble(INTERVAL '10 minutes'), customer;

INSERT INTO output
SELECT window.end AS last, customer, 'both' AS who
FROM (SELECT window, customer FROM ordered INTERSECT SELECT window, customer FROM paid)
UNION ALL
SELECT window.end AS last, customer, 'ordered only' AS who
FROM (SELECT window, customer FROM ordered EXCEPT SELECT window, customer FROM paid);

-- expect output
WITH ordered AS (SELECT window(at, '10 minutes').end AS last, customer FROM orders),
paid AS (SELECT window(at, '10 minutes').end AS last, customer FROM payments)
SELECT last, customer, 'both' FROM (SELECT * FROM ordered INTERSECT SELECT * FROM paid)
UNION ALL
SELECT last, customer, 'ordered only' FROM (SELECT * FROM ordered EXCEPT SELECT * FROM paid)
