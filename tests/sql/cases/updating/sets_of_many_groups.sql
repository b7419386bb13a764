-- Sets, lists and texts of distinct values are the same whenever they are made.
-- input: skewed 1000
-- sink: changelog
-- functions
INSERT INTO output
SELECT key, count(DISTINCT value) AS n, collect_set(value % 7) AS some, array_agg(DISTINCT value % 5) AS others, median(value) AS middle,
    avg(value * 0.1D) AS mean, string_agg(DISTINCT CAST(value % 3 AS TEXT), ',' ORDER BY CAST(value % 3 AS TEXT) DESC) AS text,
    spread(CAST(value AS DOUBLE)) AS spread
FROM (SELECT key * 100 + value % 40 AS key, value, at FROM skewed) GROUP BY key;

-- expect output
SELECT key, count(DISTINCT value) AS n, sort_array(collect_set(value % 7)) AS some, sort_array(collect_set(value % 5)) AS others,
    median(value) AS middle, avg(value * 0.1D) AS mean,
    array_join(sort_array(collect_set(CAST(value % 3 AS STRING)), false), ',') AS text, CAST(max(value) - min(value) AS DOUBLE) AS spread
FROM (SELECT key * 100 + value % 40 AS key, value FROM skewed) GROUP BY key
