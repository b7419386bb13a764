-- Linear regression.
-- input: rides
INSERT INTO output
SELECT window.start AS start, regr_slope(km, driver) AS slope, regr_intercept(km, driver) AS intercept, regr_count(km, driver) AS n,
    regr_r2(km, driver) AS r2, regr_avgx(km, driver) AS x, regr_avgy(km, driver) AS y, regr_sxx(km, driver) AS sxx,
    regr_sxy(km, driver) AS sxy, regr_syy(km, driver) AS syy
FROM rides GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, regr_slope(km, driver), regr_intercept(km, driver), regr_count(km, driver), regr_r2(km, driver),
    regr_avgx(km, driver), regr_avgy(km, driver), regr_sxx(km, driver), regr_sxy(km, driver), regr_syy(km, driver)
FROM rides GROUP BY window(at, '30 minutes')
