-- Nexmark q13: bids with what a table at rest says of their auctions.
-- pipeline: examples/nexmark/q13.sql
-- lookup: side (key BIGINT, value TEXT)
-- {"key": 1, "value": "one"}
-- {"key": 2, "value": "two"}
-- {"key": 5, "value": null}

-- expect q13
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT b.auction, b.bidder, b.price, b.datetime, s.value FROM bids b JOIN side s ON b.auction % 10 = s.key
