-- The three ways to name a key.
-- input: rides
INSERT INTO output
SELECT tumble(INTERVAL '30 minutes') AS w, driver % 3 AS rest, upper(kind) AS kind_name, count(*) AS rides
FROM rides
GROUP BY w, 2, upper(kind);

-- expect output
SELECT window(at, '30 minutes'), driver % 3, upper(kind), count(*)
FROM rides GROUP BY window(at, '30 minutes'), driver % 3, upper(kind)
