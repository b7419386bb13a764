-- A table without a connector hands rows from one query to the next.
-- input: rides
CREATE TABLE dear (at TIMESTAMP, kind TEXT, price BIGINT);
INSERT INTO dear SELECT at, kind, price FROM rides WHERE price > 30;
INSERT INTO output SELECT price, kind FROM dear WHERE kind <> 'city';

-- expect output
SELECT CAST(price AS BIGINT), kind FROM rides WHERE price > 30 AND kind <> 'city'
