-- Arroyo: a percentile with weights, both ways to write it.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, approx_percentile_cont_with_weight(km, driver, 0.75) AS weighted,
       approx_percentile_cont_with_weight(driver, 0.25) WITHIN GROUP (ORDER BY km) AS within
FROM rides WHERE driver IS NOT NULL GROUP BY tumble(INTERVAL '10 minutes'), kind;

-- expect output
SELECT window.start, kind, percentile(km, 0.75, driver), percentile(km, 0.25, driver)
FROM rides WHERE driver IS NOT NULL GROUP BY window(at, '10 minutes'), kind
