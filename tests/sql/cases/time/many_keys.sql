-- A hundred thousand keys in a window.
-- input: many
INSERT INTO output
SELECT window.start AS start, key, count(*) AS n, sum(value) AS total FROM many GROUP BY tumble(INTERVAL '1 hour'), key;

-- expect output
SELECT window.start, key, count(*), sum(value) FROM many GROUP BY window(at, '1 hour'), key
