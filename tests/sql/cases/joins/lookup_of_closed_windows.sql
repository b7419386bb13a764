-- Rows of closed windows are looked up, and aggregated again by the same window.
-- input: rides
-- lookup: drivers (id BIGINT, name TEXT, team TEXT)
-- {"id": 1, "name": "ann", "team": "north"}
-- {"id": 2, "name": "bob", "team": "north"}
-- {"id": 3, "name": "cem", "team": "south"}
-- {"id": 4, "name": "dan", "team": null}
CREATE TEMPORARY TABLE drivers (id BIGINT PRIMARY KEY, name TEXT, team TEXT)
WITH (connector = 'filesystem', path = '$input/drivers', lookup.cache.ttl = '0');
CREATE VIEW hourly AS
SELECT tumble(INTERVAL '1 hour') AS window, driver, count(*) AS rides FROM rides GROUP BY window, driver;
INSERT INTO output
SELECT h.window.start AS start, d.team, count(*) AS drivers, sum(h.rides) AS rides, min(d.name) AS first
FROM hourly h LEFT JOIN drivers d ON d.id = h.driver AND d.name <> 'bob'
GROUP BY h.window, d.team;

-- expect output
SELECT h.window.start, d.team, count(*), sum(h.rides), min(d.name)
FROM (SELECT window(at, '1 hour') AS window, driver, count(*) AS rides FROM rides
    GROUP BY window(at, '1 hour'), driver) h
LEFT JOIN drivers d ON d.id = h.driver AND d.name <> 'bob'
GROUP BY h.window, d.team
