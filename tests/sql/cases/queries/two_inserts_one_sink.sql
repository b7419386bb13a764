-- Two queries write to one sink.
-- input: rides
-- input: pings
CREATE TABLE both (at TIMESTAMP, what TEXT) WITH (
    connector = 'filesystem', path = '$output/both', format = 'parquet', type = 'sink');
INSERT INTO both SELECT at, kind FROM rides WHERE kind IS NOT NULL;
INSERT INTO both SELECT at, car FROM pings WHERE speed > 50;

-- expect both
SELECT at, kind FROM rides WHERE kind IS NOT NULL UNION ALL SELECT at, car FROM pings WHERE speed > 50
