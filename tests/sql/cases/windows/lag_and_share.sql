-- Other window functions: LAG, a sum over the window, a share of it.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, rides, lag(rides) OVER (PARTITION BY window ORDER BY kind) AS before,
    sum(rides) OVER (PARTITION BY window) AS total
FROM (SELECT tumble(INTERVAL '15 minutes') AS window, kind, count(*) AS rides FROM rides GROUP BY window, kind);

-- expect output
SELECT start, kind, rides, lag(rides) OVER (PARTITION BY start ORDER BY kind), sum(rides) OVER (PARTITION BY start)
FROM (SELECT window.start AS start, kind, count(*) AS rides FROM rides GROUP BY window(at, '15 minutes'), kind)
