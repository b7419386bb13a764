-- Rows that never change, to a sink that could take changes: inserts only.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT at, driver, price FROM rides WHERE kind = 'pool';

-- expect output
SELECT at, driver, price FROM rides WHERE kind = 'pool'
