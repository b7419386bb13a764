-- Deduplication: the first row of each key, by event time.
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT order_id, customer, method FROM (
    SELECT *, row_number() OVER (PARTITION BY order_id ORDER BY at) AS n FROM payments)
WHERE n = 1 AND order_id IS NOT NULL;

-- expect output
SELECT order_id, customer, method FROM (
    SELECT *, row_number() OVER (PARTITION BY order_id ORDER BY at) AS n FROM payments)
WHERE n = 1 AND order_id IS NOT NULL
