-- Nexmark q7: the highest bid of every ten seconds.

-- in Spark
SELECT b.auction, b.price, b.bidder, b.datetime
FROM (SELECT *, window(datetime, '10 seconds') AS window FROM bids) AS b
JOIN (
    SELECT window(datetime, '10 seconds') AS window, max(price) AS most
    FROM bids
    GROUP BY window(datetime, '10 seconds')
) AS m ON b.window = m.window AND b.price = m.most

-- in Structured Streaming
-- A stream has one column with a watermark, the window, so the time becomes another column.
SELECT b.auction, b.price, b.bidder, b.datetime
FROM (
    SELECT auction, price, bidder, datetime + INTERVAL '0 seconds' AS datetime,
        window(datetime, '10 seconds') AS window
    FROM bids
) AS b
JOIN (
    SELECT window(datetime, '10 seconds') AS window, max(price) AS most
    FROM bids
    GROUP BY window(datetime, '10 seconds')
) AS m ON b.window = m.window AND b.price = m.most

-- in Flink
SELECT b.auction, b.price, b.bidder, b.`datetime`
FROM (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`datetime`), INTERVAL '10' SECOND))) AS b
JOIN (
    SELECT max(price) AS most, window_start, window_end
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`datetime`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) AS m
ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.most
