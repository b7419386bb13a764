-- An aggregate without a key.
-- input: rides
-- sink: changelog
INSERT INTO output SELECT count(*) AS rides, min(price) AS least, max(price) AS most FROM rides;

-- expect output
SELECT count(*) AS rides, min(price) AS least, max(price) AS most FROM rides
