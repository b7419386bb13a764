-- An aggregate without a window.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT kind, count(*) AS rides, sum(price) AS total FROM rides GROUP BY kind;

-- expect output
SELECT kind, count(*) AS rides, sum(price) AS total FROM rides GROUP BY kind
