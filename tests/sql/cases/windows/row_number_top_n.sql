-- The two busiest drivers of each window; ties go to the lower number.
-- input: rides
INSERT INTO output
SELECT start, driver, rides, place FROM (
    SELECT window.start AS start, driver, rides,
        ROW_NUMBER() OVER (PARTITION BY window ORDER BY rides DESC, driver ASC) AS place
    FROM (SELECT tumble(INTERVAL '15 minutes') AS window, driver, count(*) AS rides FROM rides
        WHERE driver IS NOT NULL GROUP BY window, driver))
WHERE place <= 2;

-- expect output
SELECT start, driver, rides, place FROM (
    SELECT start, driver, rides, row_number() OVER (PARTITION BY start ORDER BY rides DESC, driver) AS place
    FROM (SELECT window.start AS start, driver, count(*) AS rides FROM rides WHERE driver IS NOT NULL
        GROUP BY window(at, '15 minutes'), driver))
WHERE place <= 2
