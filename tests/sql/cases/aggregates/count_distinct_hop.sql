-- Distinct values of windows that overlap.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, count(DISTINCT driver) AS drivers
FROM rides GROUP BY hop(INTERVAL '5 minutes', INTERVAL '20 minutes'), kind;

-- expect output
SELECT window.start, kind, count(DISTINCT driver) FROM rides GROUP BY window(at, '20 minutes', '5 minutes'), kind
