-- HAVING by an alias that is also the name of the table.
-- input: rides
INSERT INTO output
SELECT window.start AS start, driver, count(*) AS rides FROM rides
GROUP BY tumble(INTERVAL '20 minutes'), driver
HAVING rides > 2;

-- expect output
SELECT window.start, driver, count(*) AS n FROM rides GROUP BY window(at, '20 minutes'), driver HAVING n > 2
