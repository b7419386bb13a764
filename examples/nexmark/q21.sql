-- Nexmark q21: the number of each bid's channel.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q21 WITH (connector = 'filesystem', path = 'out/q21', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.channel AS channel, bid.url AS url
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q21
SELECT auction, bidder, price, channel,
    CASE
        WHEN lower(channel) = 'apple' THEN '0'
        WHEN lower(channel) = 'google' THEN '1'
        WHEN lower(channel) = 'facebook' THEN '2'
        WHEN lower(channel) = 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
    END AS channel_id
FROM bids
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
    OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '';
