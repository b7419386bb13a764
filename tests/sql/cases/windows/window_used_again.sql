-- An outer aggregate by the same window.
-- input: rides
INSERT INTO output
SELECT window.start AS start, count(*) AS kinds, max(rides) AS most FROM (
    SELECT tumble(INTERVAL '15 minutes') AS window, kind, count(*) AS rides FROM rides GROUP BY window, kind)
GROUP BY window;

-- expect output
SELECT window.start, count(*), max(rides) FROM (
    SELECT window(at, '15 minutes') AS window, kind, count(*) AS rides FROM rides
    GROUP BY window(at, '15 minutes'), kind)
GROUP BY window
