-- Pairs of columns.
-- input: rides
INSERT INTO output
SELECT window.start AS start, covar_samp(km, driver) AS cs, covar_pop(km, driver) AS cp, corr(km, driver) AS c
FROM rides GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, covar_samp(km, driver), covar_pop(km, driver), corr(km, driver)
FROM rides GROUP BY window(at, '30 minutes')
