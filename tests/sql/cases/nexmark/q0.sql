-- Nexmark q0: every bid, as it is.
-- pipeline: examples/nexmark/q0.sql

-- expect q0
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, price, datetime, extra FROM bids
