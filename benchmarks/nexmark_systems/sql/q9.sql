-- Nexmark q9: the winning bid of each auction.
-- changelog: Resurgence, Flink
-- not Structured Streaming: window functions without a time window are refused

-- in Spark
SELECT id, item_name, category, bidder, price, bid_at
FROM (
    SELECT a.id, a.item_name, a.category, b.bidder, b.price, b.datetime AS bid_at,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.datetime ASC) AS place
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
)
WHERE place = 1

-- in Flink
SELECT id, item_name, category, bidder, price, bid_at
FROM (
    SELECT a.id, a.item_name, a.category, b.bidder, b.price, b.`datetime` AS bid_at,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`datetime` ASC) AS place
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.`datetime` BETWEEN a.`datetime` AND a.expires
)
WHERE place = 1
