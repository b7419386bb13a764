-- Nexmark q11: how many bids each bidder made in each of their sessions.
-- pipeline: examples/nexmark/q11.sql

-- expect q11
WITH bids AS (SELECT bid.* FROM nexmark WHERE bid IS NOT NULL)
SELECT bidder, count(*), session_window.start, session_window.end FROM bids GROUP BY bidder, session_window(datetime, '10 seconds')
