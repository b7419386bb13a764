-- Nexmark q4: the mean of the final prices of each category.
-- pipeline: examples/nexmark/q4.sql

-- expect q4
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL), auctions AS (SELECT auction.* FROM nexmark WHERE auction IS NOT NULL)
SELECT category, avg(final) AS mean FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
    GROUP BY a.id, a.category)
GROUP BY category
