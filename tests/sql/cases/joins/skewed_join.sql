-- A join in which one key has nine of ten rows.
-- input: skewed 120
-- sink: changelog
INSERT INTO output
SELECT a.key, a.value, b.n FROM skewed a JOIN (SELECT key, count(*) AS n FROM skewed GROUP BY key) b ON a.key = b.key;

-- expect output
SELECT a.key, a.value, b.n FROM skewed a JOIN (SELECT key, count(*) AS n FROM skewed GROUP BY key) b ON a.key = b.key
