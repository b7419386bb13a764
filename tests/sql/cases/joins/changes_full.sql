-- Full join of a stream with a change stream: rows lose and find their match.
-- input: orders
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE orders (at TIMESTAMP, id BIGINT, customer BIGINT, amount BIGINT) WITH (
    connector = 'single_file', path = '$input/orders.json', format = 'json', type = 'source');
CREATE TABLE stock (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output
SELECT o.id, o.amount, s.id AS item, s.kind FROM orders o FULL OUTER JOIN stock s ON o.id = s.id;

-- expect output
SELECT o.id, o.amount, s.id AS item, s.kind FROM orders o FULL OUTER JOIN stock s ON o.id = s.id
