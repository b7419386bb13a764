-- Without a window, too, what depends on the order of rows goes by event time, and ties by value.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT done, first_value(driver) AS first, last_value(km) AS last, array_agg(km) AS kms, max_by(driver, kind) AS most, min_by(driver, kind) AS least,
    mode(driver) AS mode, listagg(kind, '-') AS kinds
FROM rides WHERE driver IS NOT NULL GROUP BY done;

-- expect output
SELECT done, min_by(driver, at) AS first, max_by(km, at) AS last, transform(array_sort(collect_list(struct(at, km))), x -> x.km) AS kms,
    max(struct(kind, driver)) FILTER (WHERE kind IS NOT NULL).driver AS most,
    min(struct(kind, driver)) FILTER (WHERE kind IS NOT NULL).driver AS least,
    mode(driver, true) AS mode, listagg(kind, '-') WITHIN GROUP (ORDER BY at, kind) AS kinds
FROM rides WHERE driver IS NOT NULL GROUP BY done
