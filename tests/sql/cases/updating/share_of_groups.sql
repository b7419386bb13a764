-- A function with OVER in a grouped query without a window: each group and the sum of its kind.
-- GROUP BY ALL is what is selected and not aggregated.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT kind, driver, count(*) AS n, sum(count(*)) OVER (PARTITION BY kind) AS of_kind,
    rank() OVER (PARTITION BY kind ORDER BY count(*) DESC, driver) AS place
FROM rides GROUP BY ALL;

-- expect output
SELECT kind, driver, count(*) AS n, sum(count(*)) OVER (PARTITION BY kind) AS of_kind,
    rank() OVER (PARTITION BY kind ORDER BY count(*) DESC, driver) AS place
FROM rides GROUP BY kind, driver
