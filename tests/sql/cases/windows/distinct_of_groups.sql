-- DISTINCT over groups: of a window, each count once.
-- input: rides
INSERT INTO output
SELECT DISTINCT window.end AS last, count(*) AS rides FROM rides
GROUP BY tumble(INTERVAL '1 hour'), driver;

-- expect output
SELECT DISTINCT window(at, '1 hour').end, count(*) FROM rides
GROUP BY window(at, '1 hour'), driver
