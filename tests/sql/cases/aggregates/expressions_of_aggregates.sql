-- Arithmetic over aggregates, and aggregates of expressions.
-- input: rides
INSERT INTO output
SELECT window.start AS start, sum(price) / count(*) AS mean, max(km) - min(km) AS spread, sum(price * 2 + 1) AS doubled,
    CASE WHEN count(*) > 5 THEN 'busy' ELSE 'calm' END AS state
FROM rides GROUP BY tumble(INTERVAL '10 minutes');

-- expect output
SELECT window.start, sum(price) / count(*), max(km) - min(km), sum(price * 2 + 1), CASE WHEN count(*) > 5 THEN 'busy' ELSE 'calm' END
FROM rides GROUP BY window(at, '10 minutes')
