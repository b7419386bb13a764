-- DISTINCT over functions with OVER.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT DISTINCT kind, max(price) OVER (PARTITION BY kind) AS most FROM rides;

-- expect output
SELECT DISTINCT kind, max(price) OVER (PARTITION BY kind) AS most FROM rides
