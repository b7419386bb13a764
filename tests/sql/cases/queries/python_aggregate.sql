-- A Python aggregate over a window.
-- input: rides
-- functions
INSERT INTO output
SELECT window.start AS start, kind, spread(km) AS spread FROM rides GROUP BY tumble(INTERVAL '30 minutes'), kind;

-- expect output
SELECT window.start, kind, max(km) - min(km) FROM rides GROUP BY window(at, '30 minutes'), kind
