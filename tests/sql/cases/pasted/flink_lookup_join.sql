-- Flink: FOR SYSTEM_TIME AS OF, in a set of statements.
-- input: rides 200
-- lookup: drivers (id BIGINT, name STRING)
-- {"id": 1, "name": "Ada"}
-- {"id": 2, "name": "Bob"}
-- {"id": 3, "name": null}
CREATE TEMPORARY TABLE drivers (id BIGINT, name STRING) WITH (connector = 'filesystem', path = '$input/drivers');
EXECUTE STATEMENT SET
BEGIN
INSERT INTO output
SELECT r.at, d.name FROM rides AS r JOIN drivers FOR SYSTEM_TIME AS OF r.at AS d ON r.driver = d.id;
INSERT INTO output
SELECT r.at, d.name FROM rides AS r LEFT JOIN drivers FOR SYSTEM_TIME AS OF PROCTIME() AS d ON r.driver = d.id
WHERE d.id IS NULL;
END;

-- expect output
SELECT at, name FROM rides LEFT JOIN drivers ON driver = id
