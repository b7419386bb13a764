-- UNION, INTERSECT and EXCEPT of rows as they come: types widen, nulls are equal.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT 'in one' AS what, n FROM (
  SELECT customer AS n FROM orders UNION SELECT CAST(customer + 1 AS INT) FROM payments)
UNION ALL
SELECT 'in both' AS what, n FROM (
  SELECT id % 40 AS n FROM orders INTERSECT SELECT CAST(order_id AS INT) FROM payments)
UNION ALL
SELECT 'unpaid' AS what, n FROM (
  SELECT id AS n FROM orders EXCEPT SELECT order_id FROM payments);

-- expect output
SELECT 'in one' AS what, n FROM (
  SELECT customer AS n FROM orders UNION SELECT CAST(customer + 1 AS INT) FROM payments)
UNION ALL
SELECT 'in both', n FROM (
  SELECT id % 40 AS n FROM orders INTERSECT SELECT CAST(order_id AS INT) FROM payments)
UNION ALL
SELECT 'unpaid', n FROM (
  SELECT id AS n FROM orders EXCEPT SELECT order_id FROM payments)
