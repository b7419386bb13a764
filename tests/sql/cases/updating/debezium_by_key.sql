-- A change stream by key, in and out.
-- input: stock
-- undeclared
CREATE TABLE stock (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
CREATE TABLE items (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT) WITH (
    connector = 'single_file', path = '$output/items.changes', format = 'debezium_json', type = 'sink');
INSERT INTO items SELECT id, kind, amount FROM stock;

-- expect items
SELECT id, kind, amount FROM stock
