-- Nexmark q21: the number of each bid's channel.
-- pipeline: examples/nexmark/q21.sql

-- expect q21
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, price, channel,
    CASE
        WHEN lower(channel) = 'apple' THEN '0'
        WHEN lower(channel) = 'google' THEN '1'
        WHEN lower(channel) = 'facebook' THEN '2'
        WHEN lower(channel) = 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
    END
FROM bids
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
