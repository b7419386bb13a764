-- Windows stay open ten seconds longer: rows that were late without that are in, one is still late. A window
-- over them waits, too.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2024-01-01T00:00:01", "n": 1}
-- {"at": "2024-01-01T00:00:20.9", "n": 2}
-- {"at": "2024-01-01T00:00:09", "n": 4}
-- {"at": "2024-01-01T00:00:21", "n": 8}
-- {"at": "2024-01-01T00:00:09.9", "n": 16}
-- {"at": "2024-01-01T00:01:30", "n": 32}
-- {"at": "2024-01-01T00:01:19", "n": 64}
-- {"at": "2024-01-01T00:02:00", "n": 128}
-- epoch_rows: 1
SET allowed_lateness = INTERVAL '10 seconds';
CREATE VIEW sums AS SELECT tumble(INTERVAL '10 seconds') AS window, sum(n) AS total FROM events GROUP BY window;
CREATE TABLE minutes WITH (connector = 'filesystem', path = '$output/minutes', format = 'parquet', type = 'sink');
INSERT INTO output SELECT window.start AS start, total FROM sums;
INSERT INTO minutes SELECT window.start AS start, max(total) AS most FROM sums GROUP BY tumble(INTERVAL '1 minute');

-- expect output
SELECT window.start AS start, sum(n) AS total FROM events WHERE n <> 16 GROUP BY window(at, '10 seconds')

-- expect minutes
SELECT window.start AS start, max(total) AS most FROM (
    SELECT window.start AS at, sum(n) AS total FROM events WHERE n <> 16 GROUP BY window(at, '10 seconds'))
GROUP BY window(at, '1 minute')
