-- Columns may be called as the engine calls its own.
-- input: orders
-- sink: changelog
CREATE TABLE numbered WITH (connector = 'single_file', path = '$output/numbered.changes', format = 'debezium_json', type = 'sink');
INSERT INTO numbered SELECT partition_0, row_number() OVER (PARTITION BY id % 3 ORDER BY id) AS n
FROM (SELECT id, customer AS partition_0 FROM orders);
INSERT INTO output SELECT sum_1_0, sum(id) AS s FROM (SELECT customer AS sum_1_0, id FROM orders) GROUP BY sum_1_0;

-- expect numbered
SELECT customer AS partition_0, row_number() OVER (PARTITION BY id % 3 ORDER BY id) AS n FROM orders

-- expect output
SELECT customer AS sum_1_0, sum(id) AS s FROM orders GROUP BY customer
