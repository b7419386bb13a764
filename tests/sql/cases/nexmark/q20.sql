-- Nexmark q20: bids with their auctions, of one category.
-- pipeline: examples/nexmark/q20.sql

-- expect q20
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL), auctions AS (SELECT auction.* FROM nexmark WHERE auction IS NOT NULL)
SELECT b.auction, b.bidder, b.price, b.datetime, a.item_name, a.initial_bid, a.seller, a.category, a.expires
FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10
