-- One source, a windowed and an unwindowed sink.
-- input: rides
CREATE TABLE airport (at TIMESTAMP, driver TEXT) WITH (
    connector = 'single_file', path = '$output/airport.json', format = 'json', type = 'sink');
INSERT INTO airport SELECT at, driver FROM rides WHERE kind = 'airport';
INSERT INTO output SELECT window.end AS until, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '10 minutes');

-- expect airport
SELECT at, CAST(driver AS STRING) AS driver FROM rides WHERE kind = 'airport'
-- expect output
SELECT window.end, count(*) FROM rides GROUP BY window(at, '10 minutes')
