-- Nexmark q15: bids, bidders and auctions of each day, by ranks of price.
-- pipeline: examples/nexmark/q15.sql

-- expect q15
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT date_format(datetime, 'yyyy-MM-dd') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM bids GROUP BY date_format(datetime, 'yyyy-MM-dd')
