-- ROLLUP beside a window.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, done, sum(price) AS total FROM rides
GROUP BY tumble(INTERVAL '1 hour'), ROLLUP (kind, done);

-- expect output
SELECT w.start, kind, done, sum(price) FROM (SELECT window(at, '1 hour') AS w, * FROM rides)
GROUP BY w, ROLLUP (kind, done)
