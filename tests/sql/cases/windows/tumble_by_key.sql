-- Rides by the quarter of an hour and kind; a null is a key like any other.
-- input: rides
INSERT INTO output
SELECT window.start AS start, window.end AS end, kind, count(*) AS rides, sum(price) AS total
FROM rides
GROUP BY tumble(INTERVAL '15 minutes'), kind;

-- expect output
SELECT window.start, window.end, kind, count(*), sum(price)
FROM rides GROUP BY window(at, '15 minutes'), kind
