-- Sessions of all cars together.
-- input: pings
INSERT INTO output
SELECT window.start AS start, window.end AS end, count(*) AS pings, avg(speed) AS mean
FROM pings GROUP BY session(INTERVAL '20 seconds');

-- expect output
SELECT session_window.start, session_window.end, count(*), avg(speed)
FROM pings GROUP BY session_window(at, '20 seconds')
