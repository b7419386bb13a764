-- Nexmark q8: people who came and began to sell within the same ten seconds.

-- in Spark
SELECT p.id, p.name, p.window.start AS start
FROM (
    SELECT window(datetime, '10 seconds') AS window, id, name, count(*) AS came
    FROM people
    GROUP BY window(datetime, '10 seconds'), id, name
) AS p
JOIN (
    SELECT window(datetime, '10 seconds') AS window, seller, count(*) AS sold
    FROM auctions
    GROUP BY window(datetime, '10 seconds'), seller
) AS a ON p.id = a.seller AND p.window = a.window

-- in Flink
SELECT p.id, p.name, p.window_start AS `start`
FROM (
    SELECT window_start, window_end, id, name, count(*) AS came
    FROM TABLE(TUMBLE(TABLE people, DESCRIPTOR(`datetime`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, id, name
) AS p
JOIN (
    SELECT window_start, window_end, seller, count(*) AS sold
    FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(`datetime`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, seller
) AS a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
