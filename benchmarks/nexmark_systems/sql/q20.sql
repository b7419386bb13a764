-- Nexmark q20: bids with their auctions, of one category.
-- changelog: Resurgence

-- in Spark
SELECT b.auction, b.bidder, b.price, b.datetime, a.item_name, a.initial_bid, a.seller, a.category, a.expires
FROM bids b
JOIN auctions a ON b.auction = a.id
WHERE a.category = 10

-- in Flink
SELECT b.auction, b.bidder, b.price, b.`datetime`, a.item_name, a.initial_bid, a.seller, a.category, a.expires
FROM bids b
JOIN auctions a ON b.auction = a.id
WHERE a.category = 10
