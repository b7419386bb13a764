-- Sessions over the rows of narrow windows; a row stands at the end of its window.
-- input: pings
INSERT INTO output
SELECT window.start AS start, car, count(*) AS busy FROM (
    SELECT tumble(INTERVAL '10 seconds') AS w, car, count(*) AS pings FROM pings GROUP BY w, car)
GROUP BY session(INTERVAL '30 seconds'), car;

-- expect output
SELECT session_window.start, car, count(*) FROM (
    SELECT window.end - INTERVAL '1' MICROSECOND AS at, car, count(*) FROM pings GROUP BY window(at, '10 seconds'), car)
GROUP BY session_window(at, '30 seconds'), car
