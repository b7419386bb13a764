-- Nexmark q21: the number of each bid's channel.

-- in Spark
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
    OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''

-- in Flink
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
    OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
