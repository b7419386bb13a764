-- Nexmark q19: the ten highest bids of each auction.
-- changelog: Resurgence, Flink
-- not Structured Streaming: window functions without a time window are refused

-- in Spark
SELECT *
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, datetime) AS place
    FROM bids
)
WHERE place <= 10

-- in Flink
SELECT *
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, `datetime`) AS place
    FROM bids
)
WHERE place <= 10
