-- Functions over lists.
-- input: clicks
INSERT INTO output
SELECT transform(tags, x -> upper(x)) AS loud, filter(tags, x -> x <> 'y') AS rest, exists(tags, x -> x = 'z') AS has_z
FROM clicks;

-- expect output
SELECT transform(tags, x -> upper(x)), filter(tags, x -> x <> 'y'), exists(tags, x -> x = 'z') FROM clicks
