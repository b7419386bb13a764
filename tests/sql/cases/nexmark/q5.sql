-- Nexmark q5: the auctions with the most bids of the last ten seconds, every two.
-- pipeline: examples/nexmark/q5.sql

-- expect q5
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL), counted AS (
    SELECT auction, count(*) AS num, window(datetime, '10 seconds', '2 seconds').start AS start
    FROM bids GROUP BY auction, window(datetime, '10 seconds', '2 seconds'))
SELECT auction, num FROM counted JOIN (SELECT start, max(num) AS maxn FROM counted GROUP BY start) most USING (start)
WHERE num >= maxn
