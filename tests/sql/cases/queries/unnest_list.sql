-- A row per element of a list; empty and null lists give none.
-- input: clicks
INSERT INTO output
SELECT person, tag FROM (SELECT person, unnest(tags) AS tag FROM clicks) WHERE tag IS NOT NULL;

-- expect output
SELECT person, tag FROM clicks LATERAL VIEW explode(tags) AS tag WHERE tag IS NOT NULL
