-- Nexmark q10: every bid into files, with its day and minute.
-- pipeline: examples/nexmark/q10.sql

-- expect q10
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT auction, bidder, price, datetime, extra, date_format(datetime, 'yyyy-MM-dd'), date_format(datetime, 'HH:mm') FROM bids
