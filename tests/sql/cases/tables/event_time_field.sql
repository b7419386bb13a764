-- Event time by an option, with the usual delay of one second.
-- literal: events (at TIMESTAMP, k TEXT)
-- {"at": "2024-01-01T00:00:01", "k": "a"}
-- {"at": "2024-01-01T00:00:00.5", "k": "b"}
-- {"at": "2024-01-01T00:00:12", "k": "a"}
-- {"at": "2024-01-01T00:00:11.5", "k": "a"}
-- undeclared
CREATE TABLE events (at TIMESTAMP, k TEXT) WITH (
    connector = 'single_file', path = '$input/events.json', format = 'json', type = 'source', event_time_field = 'at');
INSERT INTO output SELECT window.start AS start, k, count(*) AS n FROM events GROUP BY tumble(INTERVAL '10 seconds'), k;

-- expect output
SELECT window.start, k, count(*) FROM events GROUP BY window(at, '10 seconds'), k
