-- QUALIFY by an alias and by a function of its own, over closed windows.
-- input: rides
CREATE VIEW hourly AS
SELECT window, driver, count(*) AS rides, sum(km) AS km FROM rides
GROUP BY tumble(INTERVAL '1 hour'), driver;

INSERT INTO output
SELECT window.start AS start, driver,
  row_number() OVER (PARTITION BY window ORDER BY rides DESC, driver) AS place
FROM hourly WHERE rides > 1
QUALIFY place <= 3 AND km < max(km) OVER (PARTITION BY window);

-- expect output
SELECT start, driver, place FROM (
  SELECT w.start AS start, driver, km, max(km) OVER (PARTITION BY w) AS most,
    row_number() OVER (PARTITION BY w ORDER BY rides DESC, driver) AS place
  FROM (
    SELECT window(at, '1 hour') AS w, driver, count(*) AS rides, sum(km) AS km FROM rides
    GROUP BY 1, driver)
  WHERE rides > 1)
WHERE place <= 3 AND km < most
