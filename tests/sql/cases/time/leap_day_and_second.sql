-- The 29th of February, the last day of leap years, and the end of a year with a leap second.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "2016-12-31T23:59:59.999999", "n": 1}
-- {"at": "2017-01-01T00:00:00", "n": 2}
-- {"at": "2024-02-28T23:59:59", "n": 4}
-- {"at": "2024-02-29T00:00:00", "n": 8}
-- {"at": "2024-02-29T23:59:59.999999", "n": 16}
-- {"at": "2024-03-01T00:00:00", "n": 32}
-- {"at": "2024-12-31T12:00:00", "n": 64}
INSERT INTO output SELECT CAST(window.start AS DATE) AS day, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '1 day');

-- expect output
SELECT CAST(window.start AS DATE), sum(n) FROM events GROUP BY window(at, '1 day')
