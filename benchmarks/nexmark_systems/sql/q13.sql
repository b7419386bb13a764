-- Nexmark q13: bids with what a table at rest says of their auctions.

-- in Resurgence
SELECT b.auction, b.bidder, b.price, b.datetime, s.value
FROM (SELECT *, auction % 10 AS side FROM bids) AS b
JOIN side s ON b.side = s.key

-- in Spark
SELECT b.auction, b.bidder, b.price, b.datetime, s.value
FROM bids b
JOIN side s ON b.auction % 10 = s.key

-- in Flink
-- Its files are no lookup table, hence a join with the version of the row at the time of the bid.
SELECT b.auction, b.bidder, b.price, b.`datetime`, s.`value`
FROM (SELECT *, auction % 10 AS side FROM bids) AS b
JOIN side FOR SYSTEM_TIME AS OF b.`datetime` AS s ON b.side = s.`key`
