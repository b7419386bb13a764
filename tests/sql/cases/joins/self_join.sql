-- A stream with itself.
-- input: orders
-- sink: changelog
INSERT INTO output
SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id WHERE a.amount = b.amount;

-- expect output
SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id WHERE a.amount = b.amount
