-- QUALIFY over rows as they come: the newest of each key.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT driver, at, price FROM rides
QUALIFY row_number() OVER (PARTITION BY driver ORDER BY at DESC, km) = 1;

-- expect output
SELECT driver, at, price FROM (
  SELECT *, row_number() OVER (PARTITION BY driver ORDER BY at DESC, km) AS place FROM rides)
WHERE place = 1
