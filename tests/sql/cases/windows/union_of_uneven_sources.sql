-- Windows that meet in a UNION close together, though one source is far ahead of the other.
-- literal: fast (at TIMESTAMP, k TEXT)
-- {"at": "2024-01-01T00:01:00", "k": "a"}
-- {"at": "2024-01-01T00:31:00", "k": "b"}
-- {"at": "2024-01-01T01:01:00", "k": "a"}
-- {"at": "2024-01-01T02:01:00", "k": "c"}
-- {"at": "2024-01-01T03:01:00", "k": "c"}
-- {"at": "2024-01-01T04:01:00", "k": "c"}
-- literal: slow (at TIMESTAMP, k TEXT)
-- {"at": "2024-01-01T00:01:00", "k": "a"}
-- {"at": "2024-01-01T00:02:00", "k": "c"}
-- {"at": "2024-01-01T00:03:00", "k": "c"}
-- {"at": "2024-01-01T00:04:00", "k": "d"}
-- {"at": "2024-01-01T00:05:00", "k": "e"}
-- {"at": "2024-01-01T01:05:00", "k": "e"}
-- epoch_rows: 2
CREATE VIEW seen AS
SELECT window, k FROM fast GROUP BY tumble(INTERVAL '1 hour'), k
UNION
SELECT window, k FROM slow GROUP BY tumble(INTERVAL '1 hour'), k;

INSERT INTO output
SELECT window.start AS start, count(*) AS n FROM seen GROUP BY window;

-- expect output
SELECT w.start, count(*) FROM (
  SELECT window(at, '1 hour') AS w, k FROM fast UNION SELECT window(at, '1 hour'), k FROM slow)
GROUP BY w
