-- Rows of windows that have closed go to a sink of their own: one row an epoch, the watermark a second behind.
-- literal: events (at TIMESTAMP, n BIGINT, is_late BOOLEAN)
-- {"at": "2024-01-01T00:00:01", "n": 1, "is_late": false}
-- {"at": "2024-01-01T00:00:10.5", "n": 2, "is_late": false}
-- {"at": "2024-01-01T00:00:09", "n": 4, "is_late": false}
-- {"at": "2024-01-01T00:00:11", "n": 8, "is_late": false}
-- {"at": "2024-01-01T00:00:09.9", "n": 16, "is_late": true}
-- {"at": "2024-01-01T00:00:30", "n": 32, "is_late": false}
-- {"at": "2024-01-01T00:00:19", "n": 64, "is_late": true}
-- {"at": "2024-01-01T00:00:20", "n": 128, "is_late": false}
-- epoch_rows: 1
CREATE TABLE too_late WITH (connector = 'filesystem', path = '$output/too_late', format = 'parquet', type = 'sink');
SET late_rows = 'too_late';
INSERT INTO output SELECT window.start AS start, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '10 seconds');

-- expect output
SELECT window.start, sum(n) FROM events WHERE NOT is_late GROUP BY window(at, '10 seconds')

-- expect too_late
SELECT at, n, is_late FROM events WHERE is_late
