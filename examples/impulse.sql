-- Ten seconds of numbers, counted by the second, as JSON lines on standard output.

CREATE TABLE numbers WITH (connector = 'impulse', event_rate = 1000, message_count = 10000);

SELECT window.start AS second, count(*) AS numbers, sum(counter) AS total
FROM numbers
GROUP BY tumble(INTERVAL '1 second');
