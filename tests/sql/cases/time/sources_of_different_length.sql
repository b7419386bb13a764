-- Sources of very different length: the short one ends, the long one goes on.
-- input: rides 200
-- input: pings 300
CREATE TABLE cars (start TIMESTAMP, pings BIGINT) WITH (
    connector = 'filesystem', path = '$output/cars', format = 'parquet', type = 'sink');
INSERT INTO cars SELECT window.start, count(*) FROM pings GROUP BY tumble(INTERVAL '5 minutes');
INSERT INTO output SELECT window.start AS start, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '5 minutes');

-- expect cars
SELECT window.start, count(*) FROM pings GROUP BY window(at, '5 minutes')
-- expect output
SELECT window.start, count(*) FROM rides GROUP BY window(at, '5 minutes')
