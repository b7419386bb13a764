-- Nexmark q2: bids for some auctions.

-- in Spark
SELECT auction, price FROM bids WHERE auction % 123 = 0

-- in Flink
SELECT auction, price FROM bids WHERE auction % 123 = 0
