-- Rows that differ by a microsecond differ, also where changes are paired by key.
-- literal: events (at TIMESTAMP, k INT)
-- {"at": "2024-01-01T00:00:00.000001", "k": 1}
-- {"at": "2024-01-01T00:00:00.000002", "k": 1}
-- {"at": "2024-01-01T00:00:01", "k": 1}
-- epoch_rows: 1
CREATE TABLE newest (k INT PRIMARY KEY, at TIMESTAMP) WITH (connector = 'single_file', path = '$output/newest.changes', format = 'debezium_json', type = 'sink');
INSERT INTO newest SELECT k, max(at) FROM events GROUP BY k;

-- expect newest
SELECT k, max(at) AS at FROM events GROUP BY k
