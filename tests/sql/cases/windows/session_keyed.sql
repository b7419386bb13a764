-- Sessions of each car.
-- input: pings
INSERT INTO output
SELECT window.start AS start, window.end AS end, car, count(*) AS pings, max(speed) AS fastest
FROM pings GROUP BY session(INTERVAL '60 seconds'), car;

-- expect output
SELECT session_window.start, session_window.end, car, count(*), max(speed)
FROM pings GROUP BY session_window(at, '60 seconds'), car
