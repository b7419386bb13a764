-- Nexmark q6: the mean of the final prices of the last ten auctions of each seller.
-- pipeline: examples/nexmark/q6.sql

-- expect q6
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL), auctions AS (SELECT auction.* FROM nexmark WHERE auction IS NOT NULL)
SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean FROM (
    SELECT a.seller, a.id, max(b.price) AS final
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
    GROUP BY a.seller, a.id)
