-- Nexmark q18: the last bid of each bidder for each auction.
-- pipeline: examples/nexmark/q18.sql

-- expect q18
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, price, channel, url, datetime, extra FROM (
    SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY datetime DESC) AS place FROM bids)
WHERE place <= 1
