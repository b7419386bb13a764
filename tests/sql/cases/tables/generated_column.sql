-- A column that is computed from others, and is event time.
-- literal: events (seconds BIGINT, k TEXT)
-- {"seconds": 1704067201, "k": "a"}
-- {"seconds": 1704067205, "k": "b"}
-- {"seconds": 1704067211, "k": "a"}
-- {"seconds": 1704067239, "k": "a"}
-- undeclared
CREATE TABLE events (
    seconds BIGINT, k TEXT,
    at TIMESTAMP GENERATED ALWAYS AS (to_timestamp(seconds)) STORED,
    WATERMARK FOR at AS at - INTERVAL '1 second'
) WITH (connector = 'single_file', path = '$input/events.json', format = 'json', type = 'source');
INSERT INTO output SELECT window.start AS start, k, count(*) AS n FROM events GROUP BY tumble(INTERVAL '10 seconds'), k;

-- expect output
SELECT window.start, k, count(*) FROM (SELECT timestamp_seconds(seconds) AS at, k FROM events) GROUP BY window(at, '10 seconds'), k
