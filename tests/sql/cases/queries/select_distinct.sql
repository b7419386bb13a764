-- DISTINCT over all rows of a stream: each row once.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT DISTINCT driver, kind FROM rides;

-- expect output
SELECT DISTINCT driver, kind FROM rides
