-- What is in stock and what is not, by a change stream inside EXISTS and outside of it.
-- input: orders
-- input: stock
-- undeclared
CREATE TABLE orders (at TIMESTAMP, id BIGINT, customer BIGINT, amount BIGINT) WITH (
    connector = 'single_file', path = '$input/orders.json', format = 'json', type = 'source');
CREATE TABLE stock (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
CREATE TABLE unknown WITH (
    connector = 'single_file', path = '$output/unknown.changes', format = 'debezium_json', type = 'sink');
CREATE TABLE wanted WITH (
    connector = 'single_file', path = '$output/wanted.changes', format = 'debezium_json', type = 'sink');
INSERT INTO unknown SELECT id, amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM stock s WHERE s.id = o.id);
INSERT INTO wanted SELECT id, amount FROM stock s WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = s.id);

-- expect unknown
SELECT id, amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM stock s WHERE s.id = o.id)
-- expect wanted
SELECT id, amount FROM stock s WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = s.id)
