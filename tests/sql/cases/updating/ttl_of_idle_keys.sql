-- A time to live that no key of this input outlives changes nothing.
-- input: rides
-- sink: changelog
SET updating_ttl = INTERVAL '7 days';
INSERT INTO output SELECT driver, count(*) AS rides FROM rides GROUP BY driver;

-- expect output
SELECT driver, count(*) AS rides FROM rides GROUP BY driver
