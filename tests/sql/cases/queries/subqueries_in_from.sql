-- Several levels of subqueries.
-- input: rides
INSERT INTO output
SELECT a.kind, a.double FROM (
    SELECT b.kind, b.price * 2 AS double FROM (
        SELECT kind, price FROM rides WHERE km > 10
    ) AS b WHERE b.price > 10
) a WHERE a.double < 100;

-- expect output
SELECT kind, price * 2 FROM rides WHERE km > 10 AND price > 10 AND price * 2 < 100
