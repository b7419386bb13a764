-- CASE in both forms, casts that succeed and casts that fail to null.
-- input: rides
INSERT INTO output
SELECT
    CASE WHEN price >= 50 THEN 'dear' WHEN price >= 20 THEN 'fair' WHEN price IS NULL THEN 'free' ELSE 'cheap' END AS class,
    CASE kind WHEN 'city' THEN 1 WHEN 'pool' THEN 2 END AS code,
    CAST(price AS INT) AS whole,
    CAST(at AS DATE) AS day,
    CAST(driver AS TEXT) AS driver,
    TRY_CAST(kind AS INT) AS none
FROM rides;

-- expect output
SELECT
    CASE WHEN price >= 50 THEN 'dear' WHEN price >= 20 THEN 'fair' WHEN price IS NULL THEN 'free' ELSE 'cheap' END,
    CASE kind WHEN 'city' THEN 1 WHEN 'pool' THEN 2 END,
    CAST(price AS INT), CAST(at AS DATE), CAST(driver AS STRING), TRY_CAST(kind AS INT)
FROM rides
