-- Spark: window() with slide and start, session_window() under its name, window_time().
-- input: rides
INSERT INTO output
SELECT window.start AS start, window.end AS end, window_time(window) AS time, driver, count(*) AS rides
FROM rides GROUP BY window(at, '10 minutes'), driver;
INSERT INTO output
SELECT w.start, w.end, CAST(NULL AS TIMESTAMP) AS time, driver, count(*) AS rides FROM (
    SELECT window(at, '10 minutes', '4 minutes', '90 seconds') AS w, driver, kind, count(*) FROM rides GROUP BY w, driver, kind)
GROUP BY w, driver;
INSERT INTO output
SELECT session_window.start, session_window.end, CAST(NULL AS TIMESTAMP) AS time, driver, count(*) AS rides
FROM rides GROUP BY session_window(at, '5 minutes'), driver;
INSERT INTO output
SELECT window(window, '30 minutes').start AS start, CAST(NULL AS TIMESTAMP) AS end, CAST(NULL AS TIMESTAMP) AS time,
       CAST(NULL AS BIGINT) AS driver, sum(rides) AS rides FROM (
    SELECT window(at, '10 minutes') AS window, count(*) AS rides FROM rides GROUP BY 1)
GROUP BY window(window, '30 minutes');

-- expect output
SELECT window.start, window.end, window.end - INTERVAL 1 MICROSECOND, driver, count(*)
FROM rides GROUP BY window(at, '10 minutes'), driver
UNION ALL
SELECT w.start, w.end, NULL, driver, count(*) FROM (
    SELECT window(at, '10 minutes', '4 minutes', '90 seconds') AS w, driver, kind FROM rides GROUP BY 1, 2, 3) GROUP BY w, driver
UNION ALL
SELECT session_window.start, session_window.end, NULL, driver, count(*) FROM rides GROUP BY session_window(at, '5 minutes'), driver
UNION ALL
SELECT window.start, NULL, NULL, NULL, count(*) FROM rides GROUP BY window(at, '30 minutes')
