-- INSERT matches columns by position, casts them, and fills what is not named with null.
-- input: rides
CREATE TABLE typed (text TEXT, wide DECIMAL(14,4), day DATE, missing BIGINT) WITH (
    connector = 'filesystem', path = '$output/typed', format = 'parquet', type = 'sink');
INSERT INTO typed (wide, text, day) SELECT price, driver, at FROM rides;

-- expect typed
SELECT CAST(driver AS STRING), CAST(price AS DECIMAL(14,4)), CAST(at AS DATE), CAST(NULL AS BIGINT) FROM rides
