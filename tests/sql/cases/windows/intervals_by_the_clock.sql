-- Intervals of the form hours:minutes:seconds, and as a cast.
-- undeclared
-- literal: t (at TIMESTAMP, k TEXT, v INT)
-- {"at": "2024-03-01T00:00:01", "k": "a", "v": 1}
-- {"at": "2024-03-01T00:00:11", "k": "b", "v": 2}
-- {"at": "2024-03-01T00:01:01", "k": "a", "v": 3}
-- {"at": "2024-03-01T00:03:01", "k": "a", "v": 4}
CREATE TABLE t (at TIMESTAMP NOT NULL, k TEXT, v INT, WATERMARK FOR at AS at - '30 seconds'::INTERVAL)
WITH (connector = 'single_file', path = '$input/t.json', format = 'json', type = 'source');
INSERT INTO output
SELECT k, hop('1 minute'::INTERVAL, INTERVAL '00:02:00') AS w, sum(v) AS s, w.start + INTERVAL '1 day 00:00:01.5' AS later
FROM t GROUP BY w, k;

-- expect output
SELECT k, w, sum(v), w.start + INTERVAL '86401.5' SECOND
FROM (SELECT *, window(at, '2 minutes', '1 minute') AS w FROM t) GROUP BY w, k
