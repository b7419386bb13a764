-- Nexmark q10: every bid into files, with its day and minute.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q10 WITH (connector = 'filesystem', path = 'out/q10', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime, bid.extra AS extra
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q10
SELECT auction, bidder, price, datetime, extra,
    date_format(datetime, 'yyyy-MM-dd') AS day, date_format(datetime, 'HH:mm') AS minute
FROM bids;
