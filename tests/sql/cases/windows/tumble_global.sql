-- A window without keys.
-- input: rides
INSERT INTO output
SELECT window.start AS start, count(*) AS rides, sum(price) AS total FROM rides GROUP BY tumble(INTERVAL '5 minutes');

-- expect output
SELECT window.start, count(*), sum(price) FROM rides GROUP BY window(at, '5 minutes')
