-- Functions with OVER in a grouped query: over the groups that HAVING keeps.
-- input: rides
INSERT INTO output
SELECT tumble(INTERVAL '10 minutes') AS window, kind, count(*) AS n,
    sum(count(*)) OVER (PARTITION BY window) AS of_all,
    row_number() OVER (PARTITION BY window.end ORDER BY sum(km) DESC, kind) AS place
FROM rides GROUP BY window, kind HAVING count(*) > 1
QUALIFY rank() OVER (PARTITION BY window ORDER BY count(*) DESC) <= 2;

-- expect output
SELECT w AS window, kind, n, of_all, place FROM (
    SELECT window(at, '10 minutes') AS w, kind, count(*) AS n,
        sum(count(*)) OVER (PARTITION BY window(at, '10 minutes')) AS of_all,
        row_number() OVER (PARTITION BY window(at, '10 minutes') ORDER BY sum(km) DESC, kind) AS place,
        rank() OVER (PARTITION BY window(at, '10 minutes') ORDER BY count(*) DESC) AS best
    FROM rides GROUP BY window(at, '10 minutes'), kind HAVING count(*) > 1)
WHERE best <= 2
