-- A view over a view, and WITH inside one.
-- input: rides
CREATE VIEW dear AS SELECT at, driver, kind, price FROM rides WHERE price > 30;
CREATE VIEW known AS
    WITH named AS (SELECT at, kind, price FROM dear WHERE kind IS NOT NULL),
         doubled AS (SELECT at, kind, price * 2 AS price FROM named)
    SELECT * FROM doubled;
INSERT INTO output
SELECT window.start AS start, kind, max(price) AS most
FROM known
GROUP BY tumble(INTERVAL '1 hour'), kind;

-- expect output
SELECT window.start, kind, max(price * 2)
FROM rides WHERE price > 30 AND kind IS NOT NULL
GROUP BY window(at, '1 hour'), kind
