-- How many drivers have how many rides: retractions move a driver from one group to the next.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT rides, count(*) AS drivers FROM (SELECT driver, count(*) AS rides FROM rides GROUP BY driver) GROUP BY rides;

-- expect output
SELECT rides, count(*) AS drivers FROM (SELECT driver, count(*) AS rides FROM rides GROUP BY driver) GROUP BY rides
