-- Nexmark q14: bids of a middle price, with a class of the hour and a count of letters.
-- pipeline: examples/nexmark/q14.sql

-- expect q14
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, 0.908 * price,
    CASE WHEN hour(datetime) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(datetime) <= 6 OR hour(datetime) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
    datetime, extra, length(extra) - length(replace(extra, 'C', ''))
FROM bids WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
