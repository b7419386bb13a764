-- Functions of text.
-- input: rides
INSERT INTO output
SELECT concat(kind, '-', driver) AS name, substring(kind, 2, 3) AS part, length(kind) AS length,
    replace(kind, 't', 'T') AS replaced, kind LIKE '%o%' AS has_o, regexp_replace(kind, '[aeiou]', '') AS bare,
    kind || '!' AS loud
FROM rides;

-- expect output
SELECT concat(kind, '-', driver), substring(kind, 2, 3), length(kind), replace(kind, 't', 'T'),
    kind LIKE '%o%', regexp_replace(kind, '[aeiou]', ''), concat(kind, '!')
FROM rides
