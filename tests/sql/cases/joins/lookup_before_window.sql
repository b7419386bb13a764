-- A driver may be in several teams: each ride counts for all of them, in its window.
-- input: rides
-- lookup: teams (driver INT, team TEXT)
-- {"driver": 1, "team": "north"}
-- {"driver": 1, "team": "south"}
-- {"driver": 2, "team": "north"}
-- {"driver": 5, "team": null}
-- {"driver": null, "team": "nobody"}
CREATE TEMPORARY TABLE teams (driver BIGINT, team TEXT) WITH (connector = 'filesystem', path = '$input/teams');
INSERT INTO output
SELECT window.start AS start, team, count(*) AS rides, sum(price) AS total
FROM rides JOIN teams USING (driver)
GROUP BY tumble(INTERVAL '30 minutes'), team;

-- expect output
SELECT window.start, team, count(*), sum(price)
FROM rides JOIN teams USING (driver) GROUP BY window(at, '30 minutes'), team
