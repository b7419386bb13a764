-- Nexmark q1: prices in another currency.
-- pipeline: examples/nexmark/q1.sql

-- expect q1
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, 0.908 * price, datetime, extra FROM bids
