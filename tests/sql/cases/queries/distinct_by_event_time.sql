-- Rows that come twice are there once; with their event time among the columns they stay rows of a stream, and
-- can be grouped by windows.
-- input: rides
CREATE VIEW once AS SELECT DISTINCT at, kind FROM (SELECT at, kind FROM rides UNION ALL SELECT at, kind FROM rides);
INSERT INTO output SELECT window.start AS start, kind, count(*) AS n FROM once GROUP BY tumble(INTERVAL '10 minutes'), kind;
CREATE TABLE rows WITH (connector = 'filesystem', path = '$output/rows', format = 'parquet', type = 'sink');
INSERT INTO rows SELECT at, kind FROM once;

-- expect output
SELECT window.start AS start, kind, count(*) AS n FROM (SELECT DISTINCT at, kind FROM rides) GROUP BY window(at, '10 minutes'), kind

-- expect rows
SELECT DISTINCT at, kind FROM rides
