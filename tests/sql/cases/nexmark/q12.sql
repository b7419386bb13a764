-- Nexmark q12: how many bids each bidder made in every ten seconds.
-- pipeline: examples/nexmark/q12.sql

-- expect q12
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT bidder, count(*), window.start, window.end FROM bids GROUP BY bidder, window(datetime, '10 seconds')
