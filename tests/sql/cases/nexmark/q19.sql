-- Nexmark q19: the ten highest bids of each auction.
-- pipeline: examples/nexmark/q19.sql

-- expect q19
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT * FROM (
    SELECT auction, bidder, price, datetime, row_number() OVER (PARTITION BY auction ORDER BY price DESC, datetime) AS place FROM bids)
WHERE place <= 10
