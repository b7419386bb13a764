-- Rides by hour and kind. Paths are relative to the folder in which the command runs.

CREATE TABLE rides (
    at     TIMESTAMP NOT NULL,
    driver BIGINT,
    kind   TEXT,
    price  DECIMAL(10, 2),
    -- Rides arrive up to 30 seconds late. An hour is complete when the watermark has passed its end.
    WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (
    connector = 'single_file',
    path = 'data/rides.json',
    format = 'json',
    type = 'source'
);

CREATE TABLE hourly (
    hour    TIMESTAMP,
    kind    TEXT,
    rides   BIGINT,
    revenue DECIMAL(20, 2)
) WITH (
    connector = 'filesystem',
    path = 'out/hourly',
    format = 'parquet',
    type = 'sink'
);

INSERT INTO hourly
SELECT window.start, kind, rides, revenue
FROM (
    SELECT tumble(INTERVAL '1 hour') AS window, kind, count(*) AS rides, sum(price) AS revenue
    FROM rides
    GROUP BY window, kind
);
