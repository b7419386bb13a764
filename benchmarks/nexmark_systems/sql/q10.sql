-- Nexmark q10: every bid into files, with its day and minute.

-- in Spark
SELECT auction, bidder, price, datetime, extra,
    date_format(datetime, 'yyyy-MM-dd') AS day, date_format(datetime, 'HH:mm') AS minute
FROM bids

-- in Flink
SELECT auction, bidder, price, `datetime`, extra,
    date_format(`datetime`, 'yyyy-MM-dd') AS `day`, date_format(`datetime`, 'HH:mm') AS `minute`
FROM bids
