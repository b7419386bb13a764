-- Nexmark q9: the winning bid of each auction.
-- pipeline: examples/nexmark/q9.sql

-- expect q9
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL), auctions AS (SELECT auction.* FROM nexmark WHERE auction IS NOT NULL)
SELECT id, item_name, category, bidder, price, bid_at FROM (
    SELECT a.id, a.item_name, a.category, b.bidder, b.price, b.datetime AS bid_at,
        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.datetime) AS place
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires)
WHERE place = 1
