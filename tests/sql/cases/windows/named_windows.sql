-- WINDOW name AS (...), one upon the other, over groups.
-- input: rides
INSERT INTO output
SELECT tumble('20 minutes') AS window, kind, count(*) AS n, rank() OVER best AS place,
    sum(count(*)) OVER (best ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two, max(count(*)) OVER whole AS most,
    first_value(kind) IGNORE NULLS OVER best AS first
FROM rides GROUP BY window, kind HAVING count(*) > 1
WINDOW whole AS (PARTITION BY window), best AS (whole ORDER BY count(*) DESC, kind) QUALIFY row_number() OVER best < 4;

-- expect output
SELECT * FROM (
    SELECT w, kind, n, rank() OVER best AS place, sum(n) OVER (PARTITION BY w ORDER BY n DESC, kind ROWS BETWEEN 1 PRECEDING AND CURRENT ROW),
        max(n) OVER (PARTITION BY w), first_value(kind) IGNORE NULLS OVER best
    FROM (SELECT window(at, '20 minutes') AS w, kind, count(*) AS n FROM rides GROUP BY 1, 2 HAVING count(*) > 1)
    WINDOW best AS (PARTITION BY w ORDER BY n DESC, kind))
WHERE place < 4
