-- FILTER on each aggregate.
-- input: rides
INSERT INTO output
SELECT window.start AS start, count(*) FILTER (WHERE done) AS done, sum(price) FILTER (WHERE kind = 'city') AS city,
    max(km) FILTER (WHERE driver IS NULL) AS far
FROM rides GROUP BY tumble(INTERVAL '10 minutes');

-- expect output
SELECT window.start, count(*) FILTER (WHERE done), sum(price) FILTER (WHERE kind = 'city'), max(km) FILTER (WHERE driver IS NULL)
FROM rides GROUP BY window(at, '10 minutes')
