-- The newest rows of a change stream by key: when one goes, the next takes its place.
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE stock (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output
SELECT kind, id, amount FROM (
    SELECT kind, id, amount, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY at DESC, id) AS n FROM stock)
WHERE n = 1;

-- expect output
SELECT kind, id, amount FROM (
    SELECT kind, id, amount, row_number() OVER (PARTITION BY kind ORDER BY at DESC, id) AS n FROM stock)
WHERE n = 1
