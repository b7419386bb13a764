-- Column names that are keywords elsewhere need no quotes.
-- literal: events (at TIMESTAMP, start BIGINT, end BIGINT, count BIGINT, value TEXT, min INT, max INT, rows INT)
-- {"at": "2024-01-01T00:00:01", "start": 1, "end": 2, "count": 3, "value": "a", "min": 4, "max": 5, "rows": 6}
-- {"at": "2024-01-01T00:00:02", "start": 10, "end": 20, "count": 30, "value": "b", "min": 40, "max": 50, "rows": 60}
-- {"at": "2024-01-01T00:00:12", "start": 3, "end": 4, "count": 5, "value": "a", "min": 6, "max": 7, "rows": 8}
INSERT INTO output
SELECT start, end, count, value, min, max, rows, at AS timestamp FROM events WHERE end > start AND rows > 0;

-- expect output
SELECT `start`, `end`, `count`, `value`, `min`, `max`, `rows`, at FROM events WHERE `end` > `start` AND `rows` > 0
