-- A width that is no multiple of the slide.
-- input: rides
INSERT INTO output
SELECT window.start AS start, window.end AS end, count(*) AS rides, avg(km) AS mean
FROM rides GROUP BY hop(INTERVAL '4 minutes', INTERVAL '10 minutes');

-- expect output
SELECT window.start, window.end, count(*), avg(km) FROM rides GROUP BY window(at, '10 minutes', '4 minutes')
