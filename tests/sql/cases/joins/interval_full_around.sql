-- What met a row that is forgotten has still met it: it is not alone when the next one comes.
-- literal: l (at TIMESTAMP, k INT, v TEXT)
-- {"at": "2024-01-01T00:00:00", "k": 1, "v": "a"}
-- {"at": "2024-01-01T00:00:50", "k": 2, "v": "b"}
-- {"at": "2024-01-01T00:01:15", "k": 2, "v": "c"}
-- {"at": "2024-01-01T00:01:40", "k": 1, "v": "d"}
-- literal: r (at TIMESTAMP, k INT, v TEXT)
-- {"at": "2024-01-01T00:00:00", "k": 2, "v": "A"}
-- {"at": "2024-01-01T00:00:50", "k": 1, "v": "B"}
-- {"at": "2024-01-01T00:01:15", "k": 2, "v": "C"}
-- {"at": "2024-01-01T00:01:16", "k": 2, "v": "D"}
-- delay: 1 second
-- epoch_rows: 1
-- sink: changelog
INSERT INTO output
SELECT l.v AS one, r.v AS other FROM l FULL JOIN r
    ON l.k = r.k AND r.at BETWEEN l.at - INTERVAL '1 minute' AND l.at + INTERVAL '1 minute';

-- expect output
SELECT l.v AS one, r.v AS other FROM l FULL JOIN r
    ON l.k = r.k AND r.at BETWEEN l.at - INTERVAL '1' MINUTE AND l.at + INTERVAL '1' MINUTE
