-- Nexmark q18: the last bid of each bidder for each auction.
-- changelog: Resurgence, Flink, Structured Streaming
-- key: auction, bidder

-- in Spark
SELECT auction, bidder, price, channel, url, datetime, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY datetime DESC) AS place
    FROM bids
)
WHERE place <= 1

-- in Structured Streaming
-- ROW_NUMBER is refused, so the newest row is an aggregate.
SELECT auction, bidder, last.price, last.channel, last.url, last.datetime, last.extra
FROM (
    SELECT auction, bidder,
        max_by(struct(price, channel, url, datetime, extra), datetime) AS last
    FROM bids
    GROUP BY auction, bidder
)

-- in Flink
SELECT auction, bidder, price, channel, url, `datetime`, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `datetime` DESC) AS place
    FROM bids
)
WHERE place <= 1
