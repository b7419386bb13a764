-- An aggregate over the rows of windows, by a wider window.
-- input: rides
INSERT INTO output
SELECT tumble(INTERVAL '1 hour') AS hour, max(rides) AS busiest, count(*) AS quarters FROM (
    SELECT tumble(INTERVAL '15 minutes') AS quarter, kind, count(*) AS rides FROM rides GROUP BY quarter, kind)
GROUP BY hour;

-- expect output
SELECT window(start, '1 hour'), max(rides), count(*) FROM (
    SELECT window(at, '15 minutes').start AS start, kind, count(*) AS rides FROM rides
    GROUP BY window(at, '15 minutes'), kind)
GROUP BY window(start, '1 hour')
