-- Nexmark q0: every bid, as it is.

-- in Spark
SELECT auction, bidder, price, datetime, extra FROM bids

-- in Flink
SELECT auction, bidder, price, `datetime`, extra FROM bids
