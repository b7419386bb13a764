-- Two updating results as one.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT kind AS what, count(*) AS n FROM rides GROUP BY kind
UNION ALL
SELECT CAST(driver AS TEXT), count(*) FROM rides GROUP BY driver;

-- expect output
SELECT kind AS what, count(*) AS n FROM rides GROUP BY kind
UNION ALL SELECT CAST(driver AS STRING), count(*) FROM rides GROUP BY driver
