-- A row is late for a session when the watermark is beyond the end of the one that it would make alone.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-01-01T00:00:01", "n": 1}
-- {"at": "2024-01-01T00:00:30", "n": 2}
-- {"at": "2024-01-01T00:00:24", "n": 4}
-- {"at": "2024-01-01T00:00:23.9", "n": 8}
-- {"at": "2024-01-01T00:00:10", "n": 16}
-- {"at": "2024-01-01T00:02:00", "n": 32}
-- epoch_rows: 1
CREATE TABLE too_late WITH (connector = 'filesystem', path = '$output/too_late', format = 'parquet', type = 'sink');
SET late_rows = 'too_late';
INSERT INTO output SELECT window.start AS start, sum(n) AS total FROM events GROUP BY session(INTERVAL '5 seconds');

-- expect output
SELECT session_window.start AS start, sum(n) AS total FROM events WHERE n NOT IN (8, 16)
GROUP BY session_window(at, '5 seconds')

-- expect too_late
SELECT at, n FROM events WHERE n IN (8, 16)
