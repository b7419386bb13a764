-- A filter over a change stream: an update can bring a row or take it away.
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE stock (id BIGINT, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output SELECT id, amount * 2 AS twice FROM stock WHERE amount > 25;

-- expect output
SELECT id, amount * 2 AS twice FROM stock WHERE amount > 25
