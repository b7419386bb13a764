-- Nexmark q5: the auctions with the most bids of the last ten seconds, every two.

-- in Spark
SELECT counted.auction, counted.num
FROM (
    SELECT auction, count(*) AS num, window(datetime, '10 seconds', '2 seconds') AS window
    FROM bids
    GROUP BY auction, window(datetime, '10 seconds', '2 seconds')
) AS counted
JOIN (
    SELECT max(num) AS maxn, window
    FROM (
        SELECT count(*) AS num, window(datetime, '10 seconds', '2 seconds') AS window
        FROM bids
        GROUP BY auction, window(datetime, '10 seconds', '2 seconds')
    )
    GROUP BY window
) AS most ON counted.window = most.window AND counted.num >= most.maxn

-- in Structured Streaming
-- The join of counts and maxima has no output there, so a window collects its counts.
SELECT top.auction, top.num
FROM (
    SELECT explode(filter(counts, each -> each.num = most)) AS top
    FROM (
        SELECT collect_list(struct(auction, num)) AS counts, max(num) AS most
        FROM (
            SELECT auction, count(*) AS num, window(datetime, '10 seconds', '2 seconds') AS window
            FROM bids
            GROUP BY auction, window(datetime, '10 seconds', '2 seconds')
        )
        GROUP BY window
    )
)

-- in Flink
SELECT counted.auction, counted.num
FROM (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(`datetime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
) AS counted
JOIN (
    SELECT max(num) AS maxn, window_start, window_end
    FROM (
        SELECT count(*) AS num, window_start, window_end
        FROM TABLE(HOP(TABLE bids, DESCRIPTOR(`datetime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    )
    GROUP BY window_start, window_end
) AS most
ON counted.window_start = most.window_start AND counted.window_end = most.window_end
    AND counted.num >= most.maxn
