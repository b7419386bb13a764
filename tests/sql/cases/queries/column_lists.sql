-- Names for columns after a view, a common table, an alias; all columns but some.
-- input: rides
CREATE VIEW named (instant, who, what) AS SELECT at, driver, kind FROM rides;

INSERT INTO output
WITH renamed (t, w, k) AS (SELECT * FROM named)
SELECT window.start AS start, x.name, count(*) AS n, max(x.who) AS most
FROM (SELECT t, w, upper(k), 1 FROM renamed) AS x (t, who, name, one)
GROUP BY tumble(INTERVAL '1 hour'), x.name;

CREATE TABLE rest WITH (
  connector = 'filesystem', path = '$output/rest', format = 'parquet', type = 'sink');
INSERT INTO rest SELECT * EXCEPT (price, done), r.* EXCEPT (at, driver, kind, km) FROM rides r;

-- expect output
SELECT window(at, '1 hour').start, upper(kind), count(*), max(driver) FROM rides
GROUP BY window(at, '1 hour'), upper(kind)
-- expect rest
SELECT at, driver, kind, km, price, done FROM rides
