-- Windows that overlap: each row is in three.
-- input: rides
INSERT INTO output
SELECT window.start AS start, window.end AS end, kind, count(*) AS rides, sum(price) AS total
FROM rides GROUP BY hop(INTERVAL '5 minutes', INTERVAL '15 minutes'), kind;

-- expect output
SELECT window.start, window.end, kind, count(*), sum(price)
FROM rides GROUP BY window(at, '15 minutes', '5 minutes'), kind
