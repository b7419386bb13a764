-- The rows of an ASOF join keep the event time of the left: they can be grouped by windows. This one has no keys.
-- input: orders
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, count(*) AS n, sum(amount) AS amount FROM
    (SELECT o.at, o.amount, r.kind FROM orders o ASOF LEFT JOIN rides r ON o.at >= r.at)
GROUP BY tumble(INTERVAL '1 hour'), kind;

-- expect output
SELECT window(at, '1 hour').start, m.kind, count(*), sum(amount) FROM
    (SELECT o.*, (SELECT max(struct(r.at, r.kind)) FROM rides r WHERE r.at <= o.at) AS m FROM orders o)
GROUP BY window(at, '1 hour'), m.kind
