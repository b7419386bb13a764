-- A table that is a query.
-- input: rides
CREATE TABLE dear AS SELECT at, kind, price FROM rides WHERE price > 30;
INSERT INTO output SELECT window.start AS start, count(*) AS rides FROM dear GROUP BY tumble(INTERVAL '30 minutes');

-- expect output
SELECT window.start, count(*) FROM rides WHERE price > 30 GROUP BY window(at, '30 minutes')
