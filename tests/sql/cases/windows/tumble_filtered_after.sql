-- A filter over the rows of a window.
-- input: rides
INSERT INTO output
SELECT start, kind, total / rides AS mean FROM (
    SELECT window.start AS start, kind, count(*) AS rides, sum(km) AS total FROM rides
    GROUP BY tumble(INTERVAL '15 minutes'), kind)
WHERE rides > 3 AND kind IS NOT NULL;

-- expect output
SELECT start, kind, total / rides FROM (
    SELECT window.start AS start, kind, count(*) AS rides, sum(km) AS total FROM rides
    GROUP BY window(at, '15 minutes'), kind)
WHERE rides > 3 AND kind IS NOT NULL
