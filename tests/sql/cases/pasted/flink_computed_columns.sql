-- Flink: computed columns without a type, one of them event time, and comments.
-- undeclared
-- literal: orders (id INT, millis BIGINT, price DOUBLE, quantity INT)
-- {"id": 1, "millis": 1704103200000, "price": 2.5, "quantity": 4}
-- {"id": 2, "millis": 1704103500000, "price": 1.0, "quantity": 3}
-- {"id": 3, "millis": 1704104100000, "price": null, "quantity": 1}
-- {"id": 4, "millis": 1704106800000, "price": 0.5, "quantity": 2}
CREATE TABLE orders (
    id INT COMMENT 'who', millis BIGINT NOT NULL, price DOUBLE, quantity INT,
    cost AS price * quantity COMMENT 'computed',
    at AS TO_TIMESTAMP_LTZ(millis, 3),
    WATERMARK FOR at AS at - INTERVAL '5' SECOND
) COMMENT 'orders' WITH (connector = 'single_file', path = '$input/orders.json', type = 'source');
CREATE TEMPORARY VIEW paid COMMENT 'orders with a price' AS SELECT at, cost FROM orders WHERE cost IS NOT NULL;
INSERT INTO output
SELECT window.start AS start, sum(cost) AS total FROM paid GROUP BY tumble(INTERVAL '15' MINUTE);

-- expect output
SELECT window.start, sum(price * quantity) FROM orders WHERE price IS NOT NULL
GROUP BY window(timestamp_millis(millis), '15 minutes')
