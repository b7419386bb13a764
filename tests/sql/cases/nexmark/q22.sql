-- Nexmark q22: the folders of each bid's address.
-- pipeline: examples/nexmark/q22.sql

-- expect q22
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6) FROM bids
