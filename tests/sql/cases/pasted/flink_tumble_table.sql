-- Flink: grouping by the windows of TUMBLE, by position too, with a filter, HAVING and a rank of groups.
-- input: rides
INSERT INTO output
SELECT w.window_start, w.window_end, window_time, kind, count(*) AS rides, sum(price) AS total,
       rank() OVER (PARTITION BY window_end ORDER BY count(*) DESC) AS place
FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '10' MINUTES)) AS w
WHERE km > 1
GROUP BY 1, w.window_end, window_time, kind
HAVING window_start > TIMESTAMP '2024-03-01 00:10:00' AND count(*) > 1;

-- expect output
SELECT window.start, window.end, window.end - INTERVAL 1 MILLISECOND, kind, count(*), sum(price),
       rank() OVER (PARTITION BY window.end ORDER BY count(*) DESC)
FROM rides WHERE km > 1 GROUP BY window(at, '10 minutes'), kind
HAVING window.start > TIMESTAMP '2024-03-01 00:10:00' AND count(*) > 1
