-- The first and the last year that a timestamp can have, and the time before 1970.
-- literal: events (at TIMESTAMP, n BIGINT)
-- {"at": "0001-01-01T00:00:00", "n": 1}
-- {"at": "0001-01-01T23:59:59.999999", "n": 2}
-- {"at": "1582-10-04T12:00:00", "n": 4}
-- {"at": "1969-12-31T23:59:59.999999", "n": 8}
-- {"at": "1970-01-01T00:00:00", "n": 16}
-- {"at": "2262-04-11T23:47:16.854776", "n": 32}
-- {"at": "9999-12-31T00:00:00", "n": 64}
INSERT INTO output
SELECT year(window.start) AS year, dayofyear(window.start) AS day, count(*) AS n, sum(n) AS total FROM events GROUP BY tumble(INTERVAL '1 day');

-- expect output
SELECT year(window.start), dayofyear(window.start), count(*), sum(n) FROM events GROUP BY window(at, '1 day')
