-- Rows that are equal as a whole; structs whose fields have the user's names.
-- input: orders
-- input: payments
-- sink: changelog
INSERT INTO output
SELECT to_json(struct(o.customer, p.method, count(*) AS n)) AS text, struct(p.method, o.customer AS c) AS made,
    to_json(struct(count(*), o.customer, upper(p.method))) AS unnamed, array_agg(struct(o.id, p.order_id) ORDER BY o.id) AS pairs
FROM orders o FULL JOIN payments p ON (o.id, o.customer) = (p.order_id, p.customer) GROUP BY o.customer, p.method;

-- expect output
SELECT to_json(struct(o.customer, p.method, count(*) AS n)) AS text, struct(p.method, o.customer AS c) AS made,
    to_json(struct(count(*), o.customer, upper(p.method))) AS unnamed, sort_array(collect_list(struct(o.id, p.order_id))) AS pairs
FROM orders o FULL JOIN payments p ON struct(o.id, o.customer) = struct(p.order_id, p.customer) GROUP BY o.customer, p.method
