-- HAVING by an alias that is also the name of the table, without a window.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT driver, count(*) AS rides FROM rides GROUP BY driver HAVING rides % 2 = 0 OR rides.driver > 4;

-- expect output
SELECT driver, count(*) AS rides FROM rides GROUP BY driver HAVING count(*) % 2 = 0 OR driver > 4
