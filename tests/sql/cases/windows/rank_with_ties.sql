-- RANK and DENSE_RANK: ties share a place.
-- input: rides
INSERT INTO output
SELECT window.start AS start, driver, rank() OVER (PARTITION BY window ORDER BY rides DESC) AS place,
    dense_rank() OVER (PARTITION BY window ORDER BY rides DESC) AS dense
FROM (SELECT tumble(INTERVAL '10 minutes') AS window, driver, count(*) AS rides FROM rides GROUP BY window, driver);

-- expect output
SELECT start, driver, rank() OVER (PARTITION BY start ORDER BY rides DESC), dense_rank() OVER (PARTITION BY start ORDER BY rides DESC)
FROM (SELECT window.start AS start, driver, count(*) AS rides FROM rides GROUP BY window(at, '10 minutes'), driver)
