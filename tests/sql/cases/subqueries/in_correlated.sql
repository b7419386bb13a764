-- A correlated IN keeps an append-only stream append-only. A bare name is the subquery's if it has it.
-- input: orders
-- input: payments
INSERT INTO output
SELECT id, customer FROM orders o
WHERE id + 1 IN (SELECT order_id + 1 FROM payments WHERE customer = o.customer AND method = 'card') AND amount > 100;

-- expect output
SELECT id, customer FROM orders o
WHERE id + 1 IN (SELECT order_id + 1 FROM payments WHERE customer = o.customer AND method = 'card') AND amount > 100
