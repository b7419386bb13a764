-- Nulls in comparisons, IN, BETWEEN, COALESCE, NULLIF and IS DISTINCT FROM.
-- input: rides
INSERT INTO output
SELECT driver, kind, coalesce(kind, 'none') AS kind_or_none, nullif(driver, 3) AS not_three,
    done IS DISTINCT FROM true AS open
FROM rides
WHERE driver IN (1, 2, 3) OR price BETWEEN 10 AND 30 OR (kind IS NULL AND NOT done);

-- expect output
SELECT driver, kind, coalesce(kind, 'none'), nullif(driver, 3), NOT (done <=> true)
FROM rides
WHERE driver IN (1, 2, 3) OR price BETWEEN 10 AND 30 OR (kind IS NULL AND NOT done)
