-- Nexmark q9: the winning bid of each auction.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q9 WITH (connector = 'single_file', path = 'out/q9.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW auctions AS
SELECT auction.id AS id, auction.item_name AS item_name, auction.category AS category, auction.datetime AS datetime, auction.expires AS expires
FROM nexmark WHERE auction IS NOT NULL;

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q9
SELECT id, item_name, category, bidder, price, bid_at
FROM (
    SELECT a.id, a.item_name, a.category, b.bidder, b.price, b.datetime AS bid_at,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.datetime ASC) AS place
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
)
WHERE place = 1;
