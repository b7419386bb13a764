-- Overlapping windows over the rows of narrow ones.
-- input: rides
INSERT INTO output
SELECT window.end AS until, sum(rides) AS rides FROM (
    SELECT tumble(INTERVAL '1 minute') AS minute, count(*) AS rides FROM rides GROUP BY minute)
GROUP BY hop(INTERVAL '5 minutes', INTERVAL '10 minutes');

-- expect output
SELECT window.end, sum(rides) FROM (
    SELECT window(at, '1 minute').start AS start, count(*) AS rides FROM rides GROUP BY window(at, '1 minute'))
GROUP BY window(start, '10 minutes', '5 minutes')
