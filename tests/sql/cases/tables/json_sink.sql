-- JSON lines as output: nested values, nulls, fractions of a second.
-- input: clicks
CREATE TABLE lines WITH (connector = 'single_file', path = '$output/lines.json', format = 'json', type = 'sink');
INSERT INTO lines SELECT at, person, tags, device, props FROM clicks;

-- expect lines
SELECT at, person, tags, device, props FROM clicks
