-- Three ways to write an interval.
-- input: rides
CREATE TABLE quoted (start TIMESTAMP, rides BIGINT) WITH (
    connector = 'filesystem', path = '$output/quoted', format = 'parquet', type = 'sink');
CREATE TABLE plain (start TIMESTAMP, rides BIGINT) WITH (
    connector = 'filesystem', path = '$output/plain', format = 'parquet', type = 'sink');
INSERT INTO quoted SELECT window.start, count(*) FROM rides GROUP BY tumble(INTERVAL '1' HOUR);
INSERT INTO plain SELECT window.start, count(*) FROM rides GROUP BY tumble('10 minutes');

-- expect quoted
SELECT window.start, count(*) FROM rides GROUP BY window(at, '1 hour')
-- expect plain
SELECT window.start, count(*) FROM rides GROUP BY window(at, '10 minutes')
