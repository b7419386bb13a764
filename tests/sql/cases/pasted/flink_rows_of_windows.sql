-- Flink: rows with their windows as they are, with columns that have no order.
-- literal: t (id INT, at TIMESTAMP, m MAP<STRING, INT>, tags ARRAY<STRING>)
-- {"id": 1, "at": "2024-01-01T00:00:00Z", "m": {"k": 1}, "tags": ["x"]}
-- {"id": 2, "at": "2024-01-01T00:00:00Z", "m": {"k": 2}, "tags": null}
-- {"id": 3, "at": "2024-01-01T00:07:00Z", "m": null, "tags": []}
-- {"id": 3, "at": "2024-01-01T00:07:00Z", "m": null, "tags": []}
-- {"id": 4, "at": "2024-01-01T00:21:00Z", "m": {}, "tags": [null]}
INSERT INTO output
SELECT id, at, m['k'] AS k, size(tags) AS tags, window_start, window_end, window_time
FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES));

-- expect output
SELECT id, at, m['k'], size(tags), start, end, end - INTERVAL 1 MILLISECOND FROM (
    SELECT *, explode(sequence(window(at, '5 minutes').end, start + INTERVAL 10 MINUTES, INTERVAL 5 MINUTES)) AS end
    FROM (SELECT *, window(at, '10 minutes').start AS start FROM t))
