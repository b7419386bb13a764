-- Flink: the first rows of each window, of rows and of groups, and rows with windows as they are.
-- input: rides
INSERT INTO output
SELECT window_start, window_end, at, price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, at) AS place
    FROM TABLE(HOP(TABLE rides, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)))
WHERE place <= 2;
INSERT INTO output
SELECT window_start, window_end, CAST(NULL AS TIMESTAMP) AS at, CAST(total AS DECIMAL(10, 2)) AS price FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC, kind) AS place
    FROM (SELECT window_start, window_end, kind, SUM(price) AS total
          FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, kind))
WHERE place = 1;
INSERT INTO output
SELECT w.window_start, w.window_end, w.at, w.price
FROM TUMBLE((SELECT at, price FROM rides WHERE done), DESCRIPTOR(at), INTERVAL '1' HOUR) AS w WHERE w.window_end > w.at;

-- expect output
SELECT window.start, window.end, at, price FROM (
    SELECT *, row_number() OVER (PARTITION BY window ORDER BY price DESC, at) AS place
    FROM (SELECT *, window(at, '10 minutes', '5 minutes') AS window FROM rides)) WHERE place <= 2
UNION ALL
SELECT window.start, window.end, NULL, total FROM (
    SELECT *, row_number() OVER (PARTITION BY window ORDER BY total DESC, kind) AS place
    FROM (SELECT window(at, '10 minutes') AS window, kind, sum(price) AS total FROM rides GROUP BY 1, 2)) WHERE place = 1
UNION ALL
SELECT window(at, '1 hour').start, window(at, '1 hour').end, at, price FROM rides WHERE done
