-- Lists, structs and maps, made and taken apart.
-- input: clicks
INSERT INTO output
SELECT device.os, device.version + 1 AS next, get(tags, 0) AS first, size(tags) AS tags,
    props['page'] AS page, array_contains(tags, 'y') AS has_y, named_struct('a', person, 'b', tags) AS pair
FROM clicks;

-- expect output
SELECT device.os, device.version + 1, get(tags, 0), size(tags), props['page'], array_contains(tags, 'y'),
    named_struct('a', person, 'b', tags)
FROM clicks
