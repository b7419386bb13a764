-- UNION and what follows it by the window, of windows over sources whose watermarks differ.
-- input: orders
-- input: payments
CREATE VIEW seen AS
SELECT window, customer FROM orders GROUP BY tumble(INTERVAL '10 minutes'), customer
UNION
SELECT window, customer FROM payments WHERE method = 'card'
GROUP BY tumble(INTERVAL '10 minutes'), customer;

INSERT INTO output
SELECT window.start AS start, count(*) AS n, sum(customer) AS total FROM seen GROUP BY window;

-- expect output
SELECT w.start, count(*), sum(customer) FROM (
  SELECT window(at, '10 minutes') AS w, customer FROM orders
  UNION
  SELECT window(at, '10 minutes'), customer FROM payments WHERE method = 'card')
GROUP BY w
