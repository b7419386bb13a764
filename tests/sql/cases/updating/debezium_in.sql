-- A change stream as input, rows as they are at the end.
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE stock (id BIGINT, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output SELECT id, kind, amount FROM stock;

-- expect output
SELECT id, kind, amount FROM stock
