-- Functions of time, in UTC.
-- input: rides
INSERT INTO output
SELECT date_trunc('hour', at) AS hour, extract(MINUTE FROM at) AS minute, hour(at) AS of_day,
    at + INTERVAL '90 minutes' AS later, date_format(at, 'yyyy-MM-dd') AS day
FROM rides;

-- expect output
SELECT date_trunc('hour', at), extract(MINUTE FROM at), hour(at), at + INTERVAL '90' MINUTE, date_format(at, 'yyyy-MM-dd')
FROM rides
