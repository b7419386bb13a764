-- Flink: sessions by a key. Groups by that key are sessions of their own; other groups are parts of one.
-- input: rides
INSERT INTO output
SELECT window_start, window_end, driver, CAST(NULL AS STRING) AS kind, count(*) AS rides
FROM TABLE(SESSION(TABLE rides PARTITION BY driver, DESCRIPTOR(at), INTERVAL '4' MINUTES))
GROUP BY window_start, window_end, driver;
INSERT INTO output
SELECT window_start, window_end, driver, kind, count(*) AS rides
FROM TABLE(SESSION(TABLE rides PARTITION BY (driver), DESCRIPTOR(at), INTERVAL '4' MINUTES))
GROUP BY window_start, window_end, driver, kind;

-- expect output
WITH parts AS (
    SELECT *, sum(begins) OVER (PARTITION BY driver ORDER BY at) AS number FROM (
        SELECT *, coalesce(INT(at > lag(at) OVER (PARTITION BY driver ORDER BY at) + INTERVAL 4 MINUTES), 1) AS begins
        FROM rides)),
spans AS (
    SELECT *, min(at) OVER (PARTITION BY driver, number) AS start,
        max(at) OVER (PARTITION BY driver, number) + INTERVAL 4 MINUTES AS end FROM parts)
SELECT start, end, driver, CAST(NULL AS STRING), count(*) FROM spans GROUP BY start, end, driver
UNION ALL
SELECT start, end, driver, kind, count(*) FROM spans GROUP BY start, end, driver, kind
