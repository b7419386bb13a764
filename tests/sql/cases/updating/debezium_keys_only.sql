-- A change stream without the rows before, by key: copied, aggregated, and joined with itself.
-- input: inventory
-- undeclared
CREATE TABLE inventory (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, note TEXT) WITH (
    connector = 'single_file', path = '$input/inventory.json', format = 'debezium_json', type = 'source');
CREATE TABLE copies WITH (
    connector = 'single_file', path = '$output/copies.changes', format = 'debezium_json', type = 'sink');
CREATE TABLE kinds WITH (
    connector = 'single_file', path = '$output/kinds.changes', format = 'debezium_json', type = 'sink');
CREATE TABLE pairs WITH (
    connector = 'single_file', path = '$output/pairs.changes', format = 'debezium_json', type = 'sink');
INSERT INTO copies SELECT id, note, amount FROM inventory;
INSERT INTO kinds SELECT kind, count(*) AS n, sum(amount) AS amount, max(note) AS note FROM inventory GROUP BY kind;
INSERT INTO pairs SELECT a.id, b.id AS other FROM inventory a JOIN inventory b ON a.amount = b.amount WHERE a.id < b.id;

-- expect copies
SELECT id, note, amount FROM inventory

-- expect kinds
SELECT kind, count(*) AS n, sum(amount) AS amount, max(note) AS note FROM inventory GROUP BY kind

-- expect pairs
SELECT a.id, b.id AS other FROM inventory a JOIN inventory b ON a.amount = b.amount WHERE a.id < b.id
