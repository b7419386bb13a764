-- Aggregates that need all rows: the most frequent value, a joined text.
-- input: rides
INSERT INTO output
SELECT window.start AS start, mode(driver % 2, true) AS often, listagg(kind, ',') WITHIN GROUP (ORDER BY kind) AS kinds
FROM rides GROUP BY tumble(INTERVAL '15 minutes');

-- expect output
SELECT window.start, mode(driver % 2, true), listagg(kind, ',') WITHIN GROUP (ORDER BY kind) FROM rides GROUP BY window(at, '15 minutes')
