-- Distinct values by a sketch, under the names of Spark and of DataFusion.
-- input: rides
INSERT INTO output
SELECT window.start AS start, approx_distinct(price) AS prices, approx_count_distinct(driver) AS drivers
FROM rides GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, approx_count_distinct(price), approx_count_distinct(driver) FROM rides GROUP BY window(at, '30 minutes')
