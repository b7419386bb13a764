-- DISTINCT in aggregates, beside plain ones.
-- input: rides
INSERT INTO output
SELECT window.start AS start, count(DISTINCT driver) AS drivers, count(DISTINCT kind, done) AS pairs, sum(DISTINCT driver) AS total,
    count(*) AS rides
FROM rides GROUP BY tumble(INTERVAL '20 minutes');

-- expect output
SELECT window.start, count(DISTINCT driver), count(DISTINCT kind, done), sum(DISTINCT driver), count(*)
FROM rides GROUP BY window(at, '20 minutes')
