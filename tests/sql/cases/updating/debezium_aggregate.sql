-- Sums over a change stream: updates and deletes count.
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE stock (id BIGINT, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output SELECT kind, count(*) AS items, sum(amount) AS amount, max(amount) AS most FROM stock GROUP BY kind;

-- expect output
SELECT kind, count(*) AS items, sum(amount) AS amount, max(amount) AS most FROM stock GROUP BY kind
