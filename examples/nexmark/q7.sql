-- Nexmark q7: the highest bid of every ten seconds.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q7 WITH (connector = 'filesystem', path = 'out/q7', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q7
SELECT b.auction, b.price, b.bidder, b.datetime
FROM (
    SELECT tumble(INTERVAL '10 seconds') AS window, auction, price, bidder, datetime, count(*) AS bids
    FROM bids
    GROUP BY window, auction, price, bidder, datetime
) AS b
JOIN (
    SELECT tumble(INTERVAL '10 seconds') AS window, max(price) AS most
    FROM bids
    GROUP BY window
) AS m ON b.window = m.window AND b.price = m.most;
