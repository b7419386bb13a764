-- An async function: before a window, as a key, and over its result.
-- input: rides
-- functions
CREATE VIEW answered AS SELECT at, driver, asked(driver, kind) AS answer FROM rides;

INSERT INTO output
SELECT window.start AS start, answer, asked(count(*), answer) AS counted, max(driver) AS driver
FROM answered GROUP BY tumble(INTERVAL '1 hour'), answer;

-- expect output
SELECT w.start, answer, concat(coalesce(answer, 'no kind'), ' by ', count(*)), max(driver)
FROM (
  SELECT window(at, '1 hour') AS w, driver, concat(coalesce(kind, 'no kind'), ' by ', driver) AS answer
  FROM rides)
GROUP BY w, answer
