-- USING shows a column once, first, and of the side that has it.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output SELECT * FROM (SELECT amount, customer FROM orders) FULL JOIN (SELECT method, customer FROM payments) USING (customer);
CREATE TABLE rights WITH (connector = 'single_file', path = '$output/rights.changes', format = 'debezium_json', type = 'sink');
INSERT INTO rights SELECT * FROM (SELECT amount, customer FROM orders) RIGHT JOIN (SELECT method, customer FROM payments) USING (customer);

-- expect output
SELECT * FROM (SELECT amount, customer FROM orders) FULL JOIN (SELECT method, customer FROM payments) USING (customer)

-- expect rights
SELECT * FROM (SELECT amount, customer FROM orders) RIGHT JOIN (SELECT method, customer FROM payments) USING (customer)
