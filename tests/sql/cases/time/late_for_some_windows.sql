-- A row can be late for one of the windows that overlap there, and not for the next.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-01-01T00:00:01", "n": 1}
-- {"at": "2024-01-01T00:00:11", "n": 2}
-- {"at": "2024-01-01T00:00:09", "n": 4}
-- {"at": "2024-01-01T00:00:40", "n": 8}
-- {"at": "2024-01-01T00:00:31", "n": 16}
-- {"at": "2024-01-01T00:00:28", "n": 32}
-- epoch_rows: 1
CREATE TABLE too_late (n BIGINT, at TEXT) WITH (connector = 'filesystem', path = '$output/too_late', format = 'parquet', type = 'sink');
SET late_rows = too_late;
INSERT INTO output SELECT window.start AS start, sum(n) AS total FROM (SELECT n, at FROM events) GROUP BY hop(INTERVAL '5 seconds', INTERVAL '10 seconds');

-- expect output
SELECT w.start, sum(n) FROM (SELECT window(at, '10 seconds', '5 seconds') AS w, n FROM events)
WHERE n <> 32 AND NOT (n = 4 AND w.end <= TIMESTAMP '2024-01-01 00:00:10') AND NOT (n = 16 AND w.end <= TIMESTAMP '2024-01-01 00:00:39')
GROUP BY w

-- expect too_late
SELECT n, CAST(at AS STRING) AS at FROM events WHERE n = 32
