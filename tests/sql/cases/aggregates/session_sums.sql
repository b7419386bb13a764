-- Mergeable aggregates over sessions.
-- input: pings
INSERT INTO output
SELECT window.start AS start, car, sum(speed) AS total, avg(speed) AS mean, min(at) AS first, max(at) AS last, variance(speed) AS v
FROM pings GROUP BY session(INTERVAL '90 seconds'), car;

-- expect output
SELECT session_window.start, car, sum(speed), avg(speed), min(at), max(at), variance(speed)
FROM pings GROUP BY session_window(at, '90 seconds'), car
