-- First and last by event time, not by arrival.
-- input: rides
INSERT INTO output
SELECT window.start AS start, first_value(km) AS opening, last_value(km) AS closing, max(km) AS high, min(km) AS low
FROM rides GROUP BY tumble(INTERVAL '10 minutes');

-- expect output
SELECT window.start, min_by(km, at), max_by(km, at), max(km), min(km) FROM rides GROUP BY window(at, '10 minutes')
