-- Nexmark q11: how many bids each bidder made in each of their sessions.

-- in Spark
SELECT bidder, count(*) AS bids, session_window.start AS start, session_window.end AS end
FROM bids
GROUP BY bidder, session_window(datetime, '10 seconds')

-- in Flink
SELECT bidder, count(*) AS bids, window_start AS `start`, window_end AS `end`
FROM TABLE(SESSION(
    TABLE bids PARTITION BY bidder, DESCRIPTOR(`datetime`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
