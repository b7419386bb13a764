-- Rows that pass, with what is computed from each.
-- input: rides
INSERT INTO output
SELECT at, driver * 10 AS code, upper(kind) AS kind, round(km, 1) AS km
FROM rides
WHERE price > 20 AND (kind <> 'pool' OR kind IS NULL);

-- expect output
SELECT at, driver * 10, upper(kind), round(km, 1)
FROM rides WHERE price > 20 AND (kind <> 'pool' OR kind IS NULL)
