-- WATERMARK FOR a column alone: rows in order are never late.
-- literal: events (at TIMESTAMP, k TEXT)
-- {"at": "2024-01-01T00:00:01", "k": "a"}
-- {"at": "2024-01-01T00:00:01", "k": "b"}
-- {"at": "2024-01-01T00:00:09.999999", "k": "a"}
-- {"at": "2024-01-01T00:00:10", "k": "a"}
-- {"at": "2024-01-01T00:00:25", "k": "b"}
-- undeclared
CREATE TABLE events (at TIMESTAMP, k TEXT, WATERMARK FOR at) WITH (
    connector = 'single_file', path = '$input/events.json', format = 'json', type = 'source');
INSERT INTO output SELECT window.start AS start, k, count(*) AS n FROM events GROUP BY tumble(INTERVAL '10 seconds'), k;

-- expect output
SELECT window.start, k, count(*) FROM events GROUP BY window(at, '10 seconds'), k
