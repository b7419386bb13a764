-- CUBE beside a hop; keys that are null in rows do not mix with those that a set leaves out.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, done, grouping(kind) AS g, grouping_id() AS id,
  grouping_id(done, kind) AS turned, count(*) AS rides, count(kind) AS kinds, max(price) AS dear
FROM rides
GROUP BY hop(INTERVAL '30 minutes', INTERVAL '1 hour'), CUBE (kind, done)
HAVING grouping(kind) = 0 OR count(*) > 1;

-- expect output
SELECT w.start, kind, done, grouping(kind), grouping_id(),
  grouping(done) * 2 + grouping(kind), count(*), count(kind_itself), max(price)
FROM (SELECT window(at, '1 hour', '30 minutes') AS w, *, kind AS kind_itself FROM rides)
GROUP BY w, CUBE (kind, done)
HAVING grouping(kind) = 0 OR count(*) > 1
