-- Lines that lack what must be there are left out.
-- literal: events (at TIMESTAMP, k TEXT)
-- {"at": "2024-01-01T00:00:01", "k": "a"}
-- {"at": null, "k": "b"}
-- {"at": "2024-01-01T00:00:03", "k": null}
-- {"at": "2024-01-01T00:00:04", "k": "c"}
-- undeclared
CREATE TABLE events (at TIMESTAMP NOT NULL, k TEXT NOT NULL, WATERMARK FOR at) WITH (
    connector = 'single_file', path = '$input/events.json', type = 'source', bad_data = 'drop');
INSERT INTO output SELECT at, k FROM events;

-- expect output
SELECT at, k FROM events WHERE at IS NOT NULL AND k IS NOT NULL
