-- A table between queries that makes a date of a window's end: a day has many windows.
-- input: rides
-- sink: changelog
CREATE TABLE days (day DATE, n BIGINT);
INSERT INTO days SELECT window.end, count(*) FROM rides GROUP BY tumble(INTERVAL '10 minutes');
INSERT INTO output SELECT day, sum(n) AS n, count(*) AS windows FROM days GROUP BY day;

-- expect output
SELECT day, sum(n) AS n, count(*) AS windows
FROM (SELECT CAST(window.end AS DATE) AS day, count(*) AS n FROM rides GROUP BY window(at, '10 minutes')) GROUP BY day
