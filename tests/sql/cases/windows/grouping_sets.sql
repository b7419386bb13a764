-- Totals by kind, by flag, and over all.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, done, count(*) AS rides FROM rides
GROUP BY tumble(INTERVAL '1 hour'), GROUPING SETS ((kind), (done), ());

-- expect output
SELECT w.start, kind, done, count(*) FROM (SELECT window(at, '1 hour') AS w, * FROM rides)
GROUP BY w, GROUPING SETS ((kind), (done), ())
