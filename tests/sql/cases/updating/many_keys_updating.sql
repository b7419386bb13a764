-- Fifty thousand keys without a window.
-- input: many 100000
-- sink: changelog
INSERT INTO output SELECT key, count(*) AS n, sum(value) AS total FROM many GROUP BY key;

-- expect output
SELECT key, count(*) AS n, sum(value) AS total FROM many GROUP BY key
