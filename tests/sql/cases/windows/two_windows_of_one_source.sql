-- Two windows over one source, into two sinks.
-- input: rides
CREATE TABLE short (start TIMESTAMP, rides BIGINT) WITH (
    connector = 'filesystem', path = '$output/short', format = 'parquet', type = 'sink');
INSERT INTO short SELECT window.start, count(*) FROM rides GROUP BY tumble(INTERVAL '1 minute');
INSERT INTO output SELECT window.start AS start, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '1 day');

-- expect short
SELECT window.start, count(*) FROM rides GROUP BY window(at, '1 minute')
-- expect output
SELECT window.start, count(*) FROM rides GROUP BY window(at, '1 day')
