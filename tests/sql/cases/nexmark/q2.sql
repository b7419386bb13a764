-- Nexmark q2: bids for some auctions.
-- pipeline: examples/nexmark/q2.sql

-- expect q2
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, price FROM bids WHERE auction % 123 = 0
