-- Two lookups by different keys, of which only the number of rows is read.
-- input: rides
-- lookup: names (id BIGINT, name TEXT)
-- {"id": 1, "name": "a"}
-- {"id": 2, "name": "b"}
-- {"id": 2, "name": "c"}
CREATE TEMPORARY TABLE names (id BIGINT, name TEXT) WITH (connector = 'filesystem', path = '$input/names');
CREATE TABLE one WITH (connector = 'filesystem', path = '$output/one', format = 'parquet', type = 'sink');
INSERT INTO one SELECT window.start AS start, count(*) AS n
FROM (SELECT at, driver AS k FROM rides) r JOIN names ON r.k = names.id GROUP BY tumble('20 minutes');
INSERT INTO output SELECT window.start AS start, count(*) AS n
FROM (SELECT at, driver + 1 AS k FROM rides) r JOIN names ON r.k = names.id GROUP BY tumble('20 minutes');

-- expect one
SELECT window.start AS start, count(*) AS n FROM rides JOIN names ON driver = id GROUP BY window(at, '20 minutes')

-- expect output
SELECT window.start AS start, count(*) AS n FROM rides JOIN names ON driver + 1 = id GROUP BY window(at, '20 minutes')
