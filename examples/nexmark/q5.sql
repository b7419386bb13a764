-- Nexmark q5: the auctions with the most bids of the last ten seconds, every two.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q5 WITH (connector = 'filesystem', path = 'out/q5', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q5
SELECT counted.auction, counted.num
FROM (
    SELECT auction, count(*) AS num, hop(INTERVAL '2 seconds', INTERVAL '10 seconds') AS window
    FROM bids
    GROUP BY auction, window
) AS counted
JOIN (
    SELECT max(num) AS maxn, window
    FROM (
        SELECT count(*) AS num, hop(INTERVAL '2 seconds', INTERVAL '10 seconds') AS window
        FROM bids
        GROUP BY auction, window
    )
    GROUP BY window
) AS most ON counted.window = most.window AND counted.num >= most.maxn;
