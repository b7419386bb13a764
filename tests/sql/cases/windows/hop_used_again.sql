-- The greatest count of each of overlapping windows.
-- input: rides
INSERT INTO output
SELECT window.start AS start, max(rides) AS most FROM (
    SELECT hop(INTERVAL '5 minutes', INTERVAL '20 minutes') AS window, driver, count(*) AS rides FROM rides GROUP BY window, driver)
GROUP BY window;

-- expect output
SELECT window.start, max(rides) FROM (
    SELECT window(at, '20 minutes', '5 minutes') AS window, driver, count(*) AS rides FROM rides
    GROUP BY window(at, '20 minutes', '5 minutes'), driver)
GROUP BY window
