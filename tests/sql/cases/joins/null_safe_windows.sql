-- Windows and a lookup table by a null-safe key.
-- input: orders
-- input: payments
-- lookup: people (id BIGINT, name TEXT)
-- {"id": 1, "name": "ann"}
-- {"id": null, "name": "nobody"}
CREATE TEMPORARY TABLE people (id BIGINT, name TEXT)
WITH (connector = 'filesystem', path = '$input/people', format = 'parquet', type = 'lookup');
CREATE VIEW o AS SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM orders GROUP BY window, customer;
CREATE VIEW p AS SELECT tumble(INTERVAL '5 minutes') AS window, customer, count(*) AS n FROM payments GROUP BY window, customer;
INSERT INTO output
SELECT o.window.start AS start, o.customer, o.n, p.n AS payments, people.name
FROM o LEFT JOIN p ON o.window IS NOT DISTINCT FROM p.window AND o.customer IS NOT DISTINCT FROM p.customer
LEFT JOIN people ON o.customer IS NOT DISTINCT FROM people.id;

-- expect output
SELECT o.w.start, o.customer, o.n, p.n, people.name FROM
    (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM orders GROUP BY window(at, '5 minutes'), customer) o
    LEFT JOIN
    (SELECT window(at, '5 minutes') AS w, customer, count(*) AS n FROM payments GROUP BY window(at, '5 minutes'), customer) p
    ON o.w = p.w AND o.customer <=> p.customer
    LEFT JOIN people ON o.customer <=> people.id
