-- Epochs of which nothing passes the filter.
-- input: rides
INSERT INTO output
SELECT window.start AS start, count(*) AS rides FROM rides WHERE at < TIMESTAMP '2024-03-01 00:20:00' OR price > 95
GROUP BY tumble(INTERVAL '2 hours');

-- expect output
SELECT window.start, count(*) FROM rides WHERE at < TIMESTAMP '2024-03-01 00:20:00' OR price > 95 GROUP BY window(at, '2 hours')
