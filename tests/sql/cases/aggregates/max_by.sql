-- The value of one column where another is greatest or least.
-- input: rides
INSERT INTO output
SELECT window.start AS start, max_by(km, at) AS last_km, min_by(kind, at) AS first_kind FROM rides
GROUP BY tumble(INTERVAL '10 minutes');

-- expect output
SELECT window.start, max_by(km, at), min_by(kind, at) FROM rides GROUP BY window(at, '10 minutes')
