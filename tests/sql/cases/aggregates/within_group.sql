-- Ordered-set aggregates.
-- input: rides
INSERT INTO output
SELECT window.start AS start, percentile_cont(0.25) WITHIN GROUP (ORDER BY km) AS quarter,
    percentile_disc(0.75) WITHIN GROUP (ORDER BY km DESC) AS upper
FROM rides GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, percentile_cont(0.25) WITHIN GROUP (ORDER BY km), percentile_disc(0.75) WITHIN GROUP (ORDER BY km DESC)
FROM rides GROUP BY window(at, '30 minutes')
