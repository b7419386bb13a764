-- Windows of a week are aligned to 1970-01-01, a Thursday.
-- input: rides
INSERT INTO output SELECT window.start AS start, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '1 week');

-- expect output
SELECT window.start, count(*) FROM rides GROUP BY window(at, '1 week')
