-- Nexmark q15: bids, bidders and auctions of each day, by ranks of price.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q15 WITH (connector = 'single_file', path = 'out/q15.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q15
SELECT date_format(datetime, 'yyyy-MM-dd') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions
FROM bids
GROUP BY date_format(datetime, 'yyyy-MM-dd');
