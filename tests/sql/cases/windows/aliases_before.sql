-- Names of items before, in the select list, HAVING and QUALIFY.
-- input: rides
INSERT INTO output
SELECT tumble(INTERVAL '20 minutes') AS w, w.start AS s, s + INTERVAL '1 minute' AS later, upper(kind) AS big, lower(big) AS small,
    count(*) AS n, n AS m, n * 1.0 / sum(n) OVER (PARTITION BY w) AS share, share > 0.3 AS much
FROM rides GROUP BY w, big HAVING n > 1 QUALIFY much;

-- expect output
SELECT * FROM (
    SELECT w, w.start AS s, w.start + INTERVAL '1 minute', big, lower(big), n, n AS m, n * 1.0 / sum(n) OVER (PARTITION BY w) AS share,
        n * 1.0 / sum(n) OVER (PARTITION BY w) > 0.3 AS much
    FROM (SELECT window(at, '20 minutes') AS w, upper(kind) AS big, count(*) AS n FROM rides GROUP BY 1, 2 HAVING count(*) > 1))
WHERE much
