-- Rows of two sources as one, then windowed.
-- input: rides
-- input: pings
CREATE VIEW seen AS
    SELECT at, kind AS what FROM rides WHERE kind IS NOT NULL
    UNION ALL
    SELECT at, car FROM pings;
INSERT INTO output
SELECT window.start AS start, what, count(*) AS seen FROM seen GROUP BY tumble(INTERVAL '10 minutes'), what;

-- expect output
SELECT window.start, what, count(*)
FROM (SELECT at, kind AS what FROM rides WHERE kind IS NOT NULL UNION ALL SELECT at, car FROM pings)
GROUP BY window(at, '10 minutes'), what
