-- Values as lists and sets, in an order that is the same everywhere.
-- input: rides
INSERT INTO output
SELECT window.start AS start, array_sort(array_agg(driver)) AS drivers, array_sort(collect_set(kind)) AS kinds,
    size(collect_list(price)) AS prices
FROM rides GROUP BY tumble(INTERVAL '10 minutes');

-- expect output
SELECT window.start, array_sort(array_agg(driver)), array_sort(collect_set(kind)), size(collect_list(price))
FROM rides GROUP BY window(at, '10 minutes')
