-- Unsigned numbers keep their range.
-- literal: events (at TIMESTAMP, u DECIMAL(20,0), w BIGINT)
-- {"at": "2024-01-01T00:00:01", "u": 18446744073709551615, "w": 4294967295}
-- {"at": "2024-01-01T00:00:02", "u": 0, "w": 0}
-- undeclared
CREATE TABLE events (at TIMESTAMP, u BIGINT UNSIGNED, w INT UNSIGNED, WATERMARK FOR at) WITH (
    connector = 'single_file', path = '$input/events.json', format = 'json', type = 'source');
INSERT INTO output SELECT u, w FROM events;

-- expect output
SELECT u, w FROM events
