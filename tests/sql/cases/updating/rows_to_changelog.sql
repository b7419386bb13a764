-- Rows that never change, to a sink that could take changes: inserts only.
-- input: rides
-- sink: changelog
-- status: pending debezium_json as output
-- long
INSERT INTO output SELECT at, driver, price FROM rides WHERE kind = 'pool';

-- expect output
SELECT at, driver, price FROM rides WHERE kind = 'pool'
