-- The counts that are the greatest of their window, as a join with the window's greatest count.
-- input: rides
INSERT INTO output
SELECT a.start, a.driver, a.n FROM
    (SELECT window, window.start AS start, driver, n FROM
        (SELECT tumble(INTERVAL '10 minutes') AS window, driver, count(*) AS n FROM rides GROUP BY window, driver)) a
    JOIN (SELECT window, max(n) AS most FROM
        (SELECT tumble(INTERVAL '10 minutes') AS window, driver, count(*) AS n FROM rides GROUP BY window, driver)
        GROUP BY window) b
    ON a.window = b.window AND a.n = b.most;

-- expect output
WITH counted AS (SELECT window.start AS start, driver, count(*) AS n FROM rides GROUP BY window(at, '10 minutes'), driver)
SELECT a.start, a.driver, a.n FROM counted a
JOIN (SELECT start, max(n) AS most FROM counted GROUP BY start) b ON a.start = b.start AND a.n = b.most
