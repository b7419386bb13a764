-- Overlapping windows over a filtered view, with HAVING.
-- input: rides
CREATE VIEW dear AS SELECT at, price FROM rides WHERE price > 40;
INSERT INTO output
SELECT window.end AS until, count(*) AS rides FROM dear
GROUP BY hop(INTERVAL '1 minute', INTERVAL '7 minutes') HAVING rides >= 3;

-- expect output
SELECT window.end, count(*) AS rides FROM rides WHERE price > 40
GROUP BY window(at, '7 minutes', '1 minute') HAVING rides >= 3
