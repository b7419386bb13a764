-- Constants part no groups; a set that leaves one out makes it null.
-- input: rides
CREATE TABLE totals WITH (connector = 'filesystem', path = '$output/totals', format = 'parquet', type = 'sink');
INSERT INTO totals
SELECT tumble('20 minutes') AS w, 'x' AS label, kind, count(*) AS n FROM rides GROUP BY w, ROLLUP (label, kind);
INSERT INTO output
SELECT 7 AS version, w.start AS start, -3 AS less, 'x' AS x, sum(n) AS n
FROM (SELECT tumble(INTERVAL '10 minutes') AS w, kind, 5 AS five, count(*) AS n FROM rides GROUP BY ALL) GROUP BY 1, w, 3, 4;

-- expect totals
SELECT w, label, kind, count(*) AS n FROM (SELECT *, 'x' AS label, window(at, '20 minutes') AS w FROM rides)
GROUP BY w, ROLLUP (label, kind)

-- expect output
SELECT 7 AS version, window.start AS start, -3 AS less, 'x' AS x, count(*) AS n FROM rides GROUP BY window(at, '10 minutes')
