-- A change stream beside an aggregate of it, in one result.
-- input: stock
-- undeclared
-- sink: changelog
CREATE TABLE stock (id BIGINT PRIMARY KEY, kind TEXT, amount BIGINT, at TIMESTAMP) WITH (
    connector = 'single_file', path = '$input/stock.json', format = 'debezium_json', type = 'source');
INSERT INTO output
SELECT kind, amount FROM stock WHERE amount > 10
UNION ALL
SELECT kind, count(*) FROM stock GROUP BY kind HAVING count(*) > 2;

-- expect output
SELECT kind, amount FROM stock WHERE amount > 10
UNION ALL
SELECT kind, count(*) FROM stock GROUP BY kind HAVING count(*) > 2
