-- Nexmark q6: the mean of the final prices of the last ten auctions of each seller.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q6 WITH (connector = 'single_file', path = 'out/q6.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW auctions AS
SELECT auction.id AS id, auction.seller AS seller, auction.datetime AS datetime, auction.expires AS expires
FROM nexmark WHERE auction IS NOT NULL;

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q6
SELECT seller, id, avg(final) OVER (
        PARTITION BY seller ORDER BY id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean
FROM (
    SELECT a.seller, a.id, max(b.price) AS final
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
    GROUP BY a.seller, a.id
);
