-- Sets without a window: totals that change as rows come.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT kind, upper(kind) AS loud, driver % 2 AS half, grouping_id() AS id, count(*) AS rides,
  sum(driver) AS drivers
FROM rides
GROUP BY GROUPING SETS ((kind, driver % 2), (half), (half), ());

-- expect output
SELECT kind, upper(kind) AS loud, driver % 2 AS half, grouping_id() AS id, count(*) AS rides,
  sum(driver_itself) AS drivers
FROM (SELECT *, driver AS driver_itself FROM rides)
GROUP BY GROUPING SETS ((kind, driver % 2), (driver % 2), (driver % 2), ())
