-- Event time and watermark by options, the latter from a generated column.
-- literal: events (at TIMESTAMP, k TEXT)
-- {"at": "2024-01-01T00:00:21", "k": "a"}
-- {"at": "2024-01-01T00:00:03", "k": "b"}
-- {"at": "2024-01-01T00:00:32", "k": "a"}
-- {"at": "2024-01-01T00:00:11.5", "k": "a"}
-- undeclared
CREATE TABLE events (
    at TIMESTAMP, k TEXT,
    mark TIMESTAMP GENERATED ALWAYS AS (at - INTERVAL '1 minute') STORED
) WITH (
    connector = 'single_file', path = '$input/events.json', format = 'json', type = 'source',
    event_time_field = 'at', watermark_field = 'mark');
INSERT INTO output SELECT window.start AS start, k, count(*) AS n FROM events GROUP BY tumble(INTERVAL '10 seconds'), k;

-- expect output
SELECT window.start, k, count(*) FROM events GROUP BY window(at, '10 seconds'), k
