-- A filter over an updating result takes rows back.
-- input: rides
-- sink: changelog
INSERT INTO output
SELECT kind, rides * 10 AS tens FROM (SELECT kind, count(*) AS rides FROM rides GROUP BY kind) WHERE rides % 2 = 0;

-- expect output
SELECT kind, rides * 10 AS tens FROM (SELECT kind, count(*) AS rides FROM rides GROUP BY kind) WHERE rides % 2 = 0
