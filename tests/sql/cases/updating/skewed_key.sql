-- Nine of ten rows have one key.
-- input: skewed 600
-- sink: changelog
INSERT INTO output SELECT key, count(*) AS n, sum(value) AS total FROM skewed GROUP BY key;

-- expect output
SELECT key, count(*) AS n, sum(value) AS total FROM skewed GROUP BY key
