-- Flink: rows of two tables that are in the same window meet; rows without a match stay.
-- input: rides 120
-- input: orders 120
INSERT INTO output
SELECT l.driver, r.id, COALESCE(l.window_start, r.window_start) AS start, COALESCE(l.window_end, r.window_end) AS end
FROM (SELECT * FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '5' MINUTES))) l
FULL JOIN (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '5' MINUTES))) r
ON l.driver = r.customer AND l.window_start = r.window_start AND l.window_end = r.window_end;

-- expect output
SELECT l.driver, r.id, COALESCE(l.window.start, r.window.start), COALESCE(l.window.end, r.window.end)
FROM (SELECT *, window(at, '5 minutes') AS window FROM rides) l
FULL JOIN (SELECT *, window(at, '5 minutes') AS window FROM orders) r
ON l.driver = r.customer AND l.window = r.window
