-- Spark's own name for it, with the rest of the row, then grouped by a window.
-- input: clicks
CREATE VIEW tagged AS SELECT at, explode(tags) AS tag FROM clicks;
INSERT INTO output
SELECT window.start AS start, tag, count(*) AS clicks FROM tagged GROUP BY tumble(INTERVAL '20 minutes'), tag;

-- expect output
SELECT window.start, tag, count(*) FROM (SELECT at, explode(tags) AS tag FROM clicks)
GROUP BY window(at, '20 minutes'), tag
