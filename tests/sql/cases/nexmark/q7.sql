-- Nexmark q7: the highest bid of every ten seconds.
-- pipeline: examples/nexmark/q7.sql

-- expect q7
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL), placed AS (SELECT *, window(datetime, '10 seconds').start AS start FROM bids)
SELECT auction, price, bidder, datetime
FROM placed JOIN (SELECT start, max(price) AS most FROM placed GROUP BY start) USING (start) WHERE price = most
