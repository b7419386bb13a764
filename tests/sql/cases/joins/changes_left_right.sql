-- Left and right joins with a change stream on either side.
-- input: orders
-- input: stock
-- undeclared
CREATE TABLE orders (at TIMESTAMP, id BIGINT, customer BIGINT, amount BIGINT) WITH (
    connector = 'single_file', path = '$input/orders.json', format = 'json', type = 'source');
CREATE TABLE stock (id BIGINT, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
CREATE TABLE lefts WITH (
    connector = 'single_file', path = '$output/lefts.changes', format = 'debezium_json', type = 'sink');
CREATE TABLE rights WITH (
    connector = 'single_file', path = '$output/rights.changes', format = 'debezium_json', type = 'sink');
INSERT INTO lefts SELECT s.id, s.amount, o.customer FROM stock s LEFT JOIN orders o ON o.id = s.id AND o.amount > s.amount;
INSERT INTO rights SELECT s.kind, o.id, o.customer FROM stock s RIGHT JOIN orders o ON o.customer = s.id;

-- expect lefts
SELECT s.id, s.amount, o.customer FROM stock s LEFT JOIN orders o ON o.id = s.id AND o.amount > s.amount
-- expect rights
SELECT s.kind, o.id, o.customer FROM stock s RIGHT JOIN orders o ON o.customer = s.id
