-- Nexmark q12: how many bids each bidder made in every ten seconds.

-- in Spark
SELECT bidder, count(*) AS bids, window.start AS start, window.end AS end
FROM bids
GROUP BY bidder, window(datetime, '10 seconds')

-- in Flink
SELECT bidder, count(*) AS bids, window_start AS `start`, window_end AS `end`
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`datetime`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
