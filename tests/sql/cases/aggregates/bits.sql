-- Bitwise aggregates.
-- input: rides
INSERT INTO output
SELECT window.start AS start, bit_and(driver) AS a, bit_or(driver) AS o, bit_xor(driver) AS x
FROM rides GROUP BY tumble(INTERVAL '10 minutes');

-- expect output
SELECT window.start, bit_and(driver), bit_or(driver), bit_xor(driver) FROM rides GROUP BY window(at, '10 minutes')
