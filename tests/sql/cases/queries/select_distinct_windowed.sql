-- DISTINCT over rows of a window.
-- input: rides
INSERT INTO output
SELECT DISTINCT start, rides FROM (
    SELECT window.start AS start, kind, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '15 minutes'), kind);

-- expect output
SELECT DISTINCT start, rides FROM (
    SELECT window.start AS start, kind, count(*) AS rides FROM rides GROUP BY window(at, '15 minutes'), kind)
