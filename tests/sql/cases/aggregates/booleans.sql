-- Boolean aggregates, under the names of Spark and of Postgres.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, bool_and(done) AS all_done, bool_or(done) AS any_done, every(km > 5) AS all_far,
    some(km > 45) AS some_far, count_if(done) AS done
FROM rides GROUP BY tumble(INTERVAL '10 minutes'), kind;

-- expect output
SELECT window.start, kind, bool_and(done), bool_or(done), every(km > 5), some(km > 45), count_if(done)
FROM rides GROUP BY window(at, '10 minutes'), kind
