-- Rows of windows to a sink that could take changes.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT window.start AS start, kind, count(*) AS rides FROM rides GROUP BY tumble(INTERVAL '20 minutes'), kind;

-- expect output
SELECT window.start AS start, kind, count(*) AS rides FROM rides GROUP BY window(at, '20 minutes'), kind
