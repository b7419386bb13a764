-- Nexmark q16: the same of each channel and day, with the minute of the last bid.
-- changelog: Resurgence, Flink, Structured Streaming
-- key: channel, day

-- in Spark
SELECT channel, date_format(datetime, 'yyyy-MM-dd') AS day, max(date_format(datetime, 'HH:mm')) AS minute,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM bids
GROUP BY channel, date_format(datetime, 'yyyy-MM-dd')

-- in Structured Streaming
-- count(DISTINCT) is refused, so the values are collected.
SELECT channel, date_format(datetime, 'yyyy-MM-dd') AS day, max(date_format(datetime, 'HH:mm')) AS minute,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    size(collect_set(bidder)) AS total_bidders,
    size(collect_set(auction)) AS total_auctions,
    size(collect_set(bidder) FILTER (WHERE price < 10000)) AS rank1_bidders,
    size(collect_set(auction) FILTER (WHERE price < 10000)) AS rank1_auctions
FROM bids
GROUP BY channel, date_format(datetime, 'yyyy-MM-dd')

-- in Flink
SELECT channel, date_format(`datetime`, 'yyyy-MM-dd') AS `day`, max(date_format(`datetime`, 'HH:mm')) AS `minute`,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM bids
GROUP BY channel, date_format(`datetime`, 'yyyy-MM-dd')
