-- Functions of the user's own, one per row and one per group. Run it with --udfs udfs.py.

CREATE TABLE numbers WITH (connector = 'impulse', event_rate = 1000, message_count = 10000);

SELECT window.start AS second, parity(counter) AS parity, spread(counter) AS spread
FROM numbers
GROUP BY tumble(INTERVAL '1 second'), parity(counter);
