-- Keys of several types, a struct among them.
-- input: clicks
INSERT INTO output
SELECT window.start AS start, device, person, props['page'] AS page, count(*) AS clicks FROM clicks
GROUP BY tumble(INTERVAL '30 minutes'), device, person, props['page'];

-- expect output
SELECT window.start, device, person, props['page'], count(*) FROM clicks
GROUP BY window(at, '30 minutes'), device, person, props['page']
