-- Arroyo: a column that is called window, beside a window without a name.
-- input: rides
INSERT INTO output
SELECT window.start AS start, tumble(INTERVAL '1 hour').start AS hour, sum(rides) AS rides FROM (
    SELECT tumble(INTERVAL '10 minutes') AS window, driver, count(*) AS rides FROM rides GROUP BY 1, 2)
GROUP BY window, tumble(INTERVAL '1 hour');

-- expect output
SELECT window.start, date_trunc('HOUR', window.start), count(*) FROM rides GROUP BY window(at, '10 minutes')
