-- Nexmark q4: the mean of the final prices of each category.
-- changelog: Resurgence, Flink
-- not Structured Streaming: an aggregate after a join requires a window there

-- in Spark
SELECT category, avg(final) AS mean
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category

-- in Flink
-- Its avg of whole numbers is a whole number.
SELECT category, avg(CAST(final AS DOUBLE)) AS mean
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.`datetime` BETWEEN a.`datetime` AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category
