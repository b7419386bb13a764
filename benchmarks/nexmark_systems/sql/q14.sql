-- Nexmark q14: bids of a middle price, with a class of the hour and a count of letters.

-- in Spark
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN hour(datetime) >= 8 AND hour(datetime) <= 18 THEN 'dayTime'
        WHEN hour(datetime) <= 6 OR hour(datetime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time, datetime, extra, length(extra) - length(replace(extra, 'C', '')) AS c_counts
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- in Flink
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN hour(`datetime`) >= 8 AND hour(`datetime`) <= 18 THEN 'dayTime'
        WHEN hour(`datetime`) <= 6 OR hour(`datetime`) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time, `datetime`, extra, char_length(extra) - char_length(replace(extra, 'C', '')) AS c_counts
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
