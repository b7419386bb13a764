-- Rides by hour and kind, from a file of JSON lines into a folder of Parquet files.
-- Paths are relative to the folder in which the command runs.

CREATE TABLE rides (
    at     TIMESTAMP NOT NULL,
    driver BIGINT,
    kind   TEXT,
    WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');

CREATE TABLE hourly (
    hour       TIMESTAMP,
    kind       TEXT,
    rides      BIGINT,
    avg_driver DOUBLE
) WITH (connector = 'filesystem', path = 'out/hourly', format = 'parquet', type = 'sink');

INSERT INTO hourly
SELECT window.start, kind, rides, avg_driver
FROM (
    SELECT tumble(INTERVAL '1 hour') AS window, kind, count(*) AS rides, avg(driver) AS avg_driver
    FROM rides
    GROUP BY window, kind
);
