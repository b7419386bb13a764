-- Nexmark q20: bids with their auctions, of one category.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q20 WITH (connector = 'single_file', path = 'out/q20.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

CREATE VIEW auctions AS
SELECT auction.id AS id, auction.item_name AS item_name, auction.initial_bid AS initial_bid, auction.seller AS seller, auction.category AS category, auction.expires AS expires
FROM nexmark WHERE auction IS NOT NULL;

INSERT INTO q20
SELECT b.auction, b.bidder, b.price, b.datetime, a.item_name, a.initial_bid, a.seller, a.category, a.expires
FROM bids b
JOIN auctions a ON b.auction = a.id
WHERE a.category = 10;
