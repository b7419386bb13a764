-- DISTINCT over a change stream: a row goes when the last of its kind goes.
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE stock (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output SELECT DISTINCT kind, amount % 5 AS rest FROM stock;

-- expect output
SELECT DISTINCT kind, amount % 5 AS rest FROM stock
