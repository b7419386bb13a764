-- HAVING over aggregates that are selected and that are not.
-- input: rides
INSERT INTO output
SELECT window.start AS start, driver, count(*) AS n FROM rides
GROUP BY tumble(INTERVAL '20 minutes'), driver
HAVING n > 2 AND max(price) > 50;

-- expect output
SELECT window.start, driver, count(*) AS n FROM rides
GROUP BY window(at, '20 minutes'), driver HAVING n > 2 AND max(price) > 50
