-- Nexmark q6: the mean of the final prices of the last ten auctions of each seller.
-- changelog: Resurgence
-- not Structured Streaming: window functions without a time window are refused
-- not Flink: OVER with a bounded number of rows requires the order of a time attribute

-- in Spark
SELECT seller, id, avg(final) OVER (
        PARTITION BY seller ORDER BY id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean
FROM (
    SELECT a.id, a.seller, max(b.price) AS final
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
    GROUP BY a.id, a.seller
)
