-- Flink: windows that grow by a step, up to a width, by key; windows without new rows appear, too.
-- input: rides 120
INSERT INTO output
SELECT window_start, window_end, kind, count(*) AS rides, sum(price) AS total, count(DISTINCT driver) AS drivers
FROM TABLE(CUMULATE(TABLE rides, DESCRIPTOR(at), INTERVAL '2' MINUTES, INTERVAL '30' MINUTES))
GROUP BY window_start, window_end, kind;

-- expect output
SELECT start, end, kind, count(*), sum(price), count(DISTINCT driver) FROM (
    SELECT *, window.start, explode(sequence(
        window(at, '2 minutes').end, window.start + INTERVAL 30 MINUTES, INTERVAL 2 MINUTES)) AS end
    FROM (SELECT *, window(at, '30 minutes') AS window FROM rides))
GROUP BY start, end, kind
