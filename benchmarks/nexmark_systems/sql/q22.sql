-- Nexmark q22: the folders of each bid's address.

-- in Spark
SELECT auction, bidder, price, channel,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids

-- in Flink
SELECT auction, bidder, price, channel,
    split_index(url, '/', 3) AS dir1, split_index(url, '/', 4) AS dir2, split_index(url, '/', 5) AS dir3
FROM bids
