-- The three dearest rides of each driver.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT driver, price, km, n FROM (
    SELECT driver, price, km, row_number() OVER (PARTITION BY driver ORDER BY price DESC, km, at) AS n
    FROM rides WHERE price IS NOT NULL)
WHERE n <= 3;

-- expect output
SELECT driver, price, km, n FROM (
    SELECT driver, price, km, row_number() OVER (PARTITION BY driver ORDER BY price DESC, km, at) AS n
    FROM rides WHERE price IS NOT NULL)
WHERE n <= 3
