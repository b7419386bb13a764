-- Nexmark q1: prices in another currency.

-- in Spark
SELECT auction, bidder, 0.908 * price AS price, datetime, extra FROM bids

-- in Flink
SELECT auction, bidder, 0.908 * price AS price, `datetime`, extra FROM bids
