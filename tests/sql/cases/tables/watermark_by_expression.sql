-- A watermark that is computed from the row.
-- input: rides
-- undeclared
CREATE TABLE rides (at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT, price DECIMAL(10,2), km DOUBLE, done BOOLEAN,
    WATERMARK FOR at AS (CASE WHEN kind = 'pool' THEN at - INTERVAL '2 minutes' ELSE at - INTERVAL '1 minute' END)
) WITH (connector = 'single_file', path = '$input/rides.json', format = 'json', type = 'source');
INSERT INTO output SELECT window.start AS start, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '5 minutes');

-- expect output
SELECT window.start, count(*) FROM rides GROUP BY window(at, '5 minutes')
