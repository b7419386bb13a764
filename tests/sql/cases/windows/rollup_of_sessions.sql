-- Sets beside a session: a session of a set is of all rows with its keys.
-- literal: pings (at TIMESTAMP, car TEXT, town TEXT)
-- {"at": "2024-01-01T00:00:00", "car": "a", "town": "x"}
-- {"at": "2024-01-01T00:00:08", "car": "b", "town": "x"}
-- {"at": "2024-01-01T00:00:16", "car": "a", "town": null}
-- {"at": "2024-01-01T00:00:24", "car": null, "town": null}
-- {"at": "2024-01-01T00:01:00", "car": "a", "town": "x"}
INSERT INTO output
SELECT window.start AS start, window.end AS last, car, town, count(*) AS pings FROM pings
GROUP BY ROLLUP (town, car), session(INTERVAL '10 seconds');

-- expect output
SELECT s.start, s.end, car, town, n FROM (
  SELECT session_window(at, '10 seconds') AS s, car, town, count(*) AS n FROM pings GROUP BY 1, car, town
  UNION ALL
  SELECT session_window(at, '10 seconds'), NULL, town, count(*) FROM pings GROUP BY 1, town
  UNION ALL
  SELECT session_window(at, '10 seconds'), NULL, NULL, count(*) FROM pings GROUP BY 1)
