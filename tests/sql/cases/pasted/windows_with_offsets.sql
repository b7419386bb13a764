-- Windows that do not begin at the full hour, in all kinds that have an alignment.
-- input: rides
INSERT INTO output
SELECT window.start AS start, window.end AS end, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '7 minutes', INTERVAL '100 seconds');
INSERT INTO output
SELECT window.start, window.end, count(*) AS rides FROM rides GROUP BY hop(INTERVAL '2 minutes', INTERVAL '7 minutes', INTERVAL '1 minute');
INSERT INTO output
SELECT window.start, window.end, count(*) AS rides FROM rides GROUP BY cumulate(INTERVAL '5 minutes', INTERVAL '15 minutes', INTERVAL '-4 minutes');

-- expect output
SELECT window.start, window.end, count(*) FROM rides GROUP BY window(at, '7 minutes', '7 minutes', '100 seconds')
UNION ALL
SELECT window.start, window.end, count(*) FROM rides GROUP BY window(at, '7 minutes', '2 minutes', '1 minute')
UNION ALL
SELECT start, end, count(*) FROM (
    SELECT start, explode(sequence(window(at, '5 minutes', '5 minutes', '1 minute').end, start + INTERVAL 15 MINUTES, INTERVAL 5 MINUTES)) AS end
    FROM (SELECT at, window(at, '15 minutes', '15 minutes', '11 minutes').start AS start FROM rides))
GROUP BY start, end
