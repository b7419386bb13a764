-- Nexmark q4: the mean of the final prices of each category.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q4 WITH (connector = 'single_file', path = 'out/q4.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW auctions AS
SELECT auction.id AS id, auction.category AS category, auction.datetime AS datetime, auction.expires AS expires
FROM nexmark WHERE auction IS NOT NULL;

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q4
SELECT category, avg(final) AS mean
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auctions a
    JOIN bids b ON a.id = b.auction AND b.datetime BETWEEN a.datetime AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category;
