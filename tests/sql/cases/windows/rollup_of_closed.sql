-- Sets over the rows of closed windows: the window is in all of them.
-- input: rides
CREATE VIEW hourly AS
SELECT window, kind, done, count(*) AS rides FROM rides
GROUP BY tumble(INTERVAL '1 hour'), kind, done;

INSERT INTO output
SELECT window.start AS start, kind, done, sum(rides) AS rides, grouping(done) AS g FROM hourly
GROUP BY window, kind, done GROUPING SETS ((window, kind), (window, kind, done), (window));

-- expect output
SELECT w.start, kind, done, count(*), grouping(done)
FROM (SELECT window(at, '1 hour') AS w, * FROM rides)
GROUP BY w, kind, done GROUPING SETS ((w, kind), (w, kind, done), (w))
