-- A Python aggregate over the rows of windows, and one whose result changes.
-- input: rides
-- functions
CREATE TABLE spreads WITH (connector = 'single_file', path = '$output/spreads.changes', format = 'debezium_json', type = 'sink');
INSERT INTO output
SELECT w.start AS start, spread(km) FILTER (WHERE kind IS NOT NULL) AS spread FROM (
    SELECT tumble(INTERVAL '30 minutes') AS w, kind, sum(km) AS km FROM rides GROUP BY w, kind) GROUP BY w;
INSERT INTO spreads SELECT kind, spread(km) AS spread FROM rides GROUP BY kind;

-- expect output
SELECT w.start AS start, max(km) - min(km) AS spread FROM (
    SELECT window(at, '30 minutes') AS w, kind, sum(km) AS km FROM rides WHERE kind IS NOT NULL GROUP BY 1, 2) GROUP BY w

-- expect spreads
SELECT kind, max(km) - min(km) AS spread FROM rides GROUP BY kind
