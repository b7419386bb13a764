-- The newest row of each key.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT driver, at, price FROM (
    SELECT driver, at, price, ROW_NUMBER() OVER (PARTITION BY driver ORDER BY at DESC) AS n FROM rides)
WHERE n = 1;

-- expect output
SELECT driver, at, price FROM (
    SELECT driver, at, price, row_number() OVER (PARTITION BY driver ORDER BY at DESC) AS n FROM rides)
WHERE n = 1
