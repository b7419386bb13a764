-- Intervals in expressions are spelled as freely as those of windows, and read to their end.
-- input: rides
INSERT INTO output
SELECT at + INTERVAL '0.5 hours' AS a, at + INTERVAL '5 min' AS b, at - INTERVAL '10 secs' AS c, at + INTERVAL '1 day 02:03:04' AS d,
    at - INTERVAL '1' DAY * 2 AS e, at + 3 * INTERVAL '1 minute' AS f, at - INTERVAL '1 month' AS g,
    at + INTERVAL '1-2' YEAR TO MONTH AS h, at + INTERVAL '1 12:00' DAY TO MINUTE AS i, at + '90 seconds'::INTERVAL AS j
FROM rides;

-- expect output
SELECT at + INTERVAL '30 minutes', at + INTERVAL '5 minutes', at - INTERVAL '10 seconds',
    at + INTERVAL '1' DAY + INTERVAL '02:03:04' HOUR TO SECOND, at - INTERVAL '2' DAY, at + INTERVAL '3 minutes', at - INTERVAL '1 month',
    at + INTERVAL '1-2' YEAR TO MONTH, at + INTERVAL '1 12:00' DAY TO MINUTE, at + INTERVAL '90 seconds'
FROM rides
