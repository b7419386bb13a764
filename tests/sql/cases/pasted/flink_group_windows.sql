-- Flink: windows in GROUP BY, with functions for their parts.
-- input: rides
INSERT INTO output
SELECT TUMBLE_START(at, INTERVAL '10' MINUTE) AS start, TUMBLE_END(at, INTERVAL '10' MINUTE) AS end,
       TUMBLE_ROWTIME(at, INTERVAL '10' MINUTE) AS time, kind, count(*) AS rides
FROM rides GROUP BY TUMBLE(at, INTERVAL '10' MINUTE), kind;
INSERT INTO output
SELECT HOP_START(at, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) AS start,
       HOP_END(at, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) AS end, CAST(NULL AS TIMESTAMP) AS time, kind, count(*) AS rides
FROM rides GROUP BY kind, HOP(at, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE);
INSERT INTO output
SELECT SESSION_START(r.at, INTERVAL '3' MINUTE) AS start, SESSION_END(r.at, INTERVAL '3' MINUTE) AS end,
       CAST(NULL AS TIMESTAMP) AS time, kind, count(*) AS rides
FROM rides AS r GROUP BY SESSION(r.at, INTERVAL '3' MINUTE), kind;

-- expect output
SELECT window.start, window.end, window.end - INTERVAL 1 MILLISECOND, kind, count(*)
FROM rides GROUP BY window(at, '10 minutes'), kind
UNION ALL
SELECT window.start, window.end, NULL, kind, count(*) FROM rides GROUP BY window(at, '10 minutes', '5 minutes'), kind
UNION ALL
SELECT session_window.start, session_window.end, NULL, kind, count(*) FROM rides GROUP BY session_window(at, '3 minutes'), kind
