CREATE TABLE numbers WITH (
    connector = 'impulse', message_count = '600', event_time_interval = '100ms',
    start_time = '2024-01-01T00:00:00');
CREATE TABLE totals (start TIMESTAMP, k BIGINT, n BIGINT, total BIGINT)
WITH (connector = 'filesystem', path = 'out', format = 'json');
INSERT INTO totals SELECT window.start, k, n, total FROM (
    SELECT tumble(INTERVAL '10 seconds') AS window, counter % 7 AS k,
           count(*) AS n, sum(counter) AS total
    FROM numbers GROUP BY window, k);
