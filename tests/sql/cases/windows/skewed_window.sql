-- A window in which nine of ten rows have one key.
-- input: skewed
INSERT INTO output SELECT window.start AS start, key, sum(value) AS total FROM skewed GROUP BY tumble(INTERVAL '5 minutes'), key;

-- expect output
SELECT window.start, key, sum(value) FROM skewed GROUP BY window(at, '5 minutes'), key
