-- Groups that come and go by HAVING.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT driver, count(*) AS rides FROM rides GROUP BY driver HAVING count(*) % 3 <> 0;

-- expect output
SELECT driver, count(*) AS rides FROM rides GROUP BY driver HAVING count(*) % 3 <> 0
