-- A row behind the watermark of both streams is late and meets nothing. A row is kept as long as one in time
-- can meet it, to the end of the interval.
-- literal: l (at TIMESTAMP, k INT, v TEXT)
-- {"at": "2024-01-01T00:00:00", "k": 1, "v": "a"}
-- {"at": "2024-01-01T00:09:50", "k": 1, "v": "b"}
-- {"at": "2024-01-01T00:00:00", "k": 1, "v": "late"}
-- {"at": "2024-01-01T00:10:00", "k": 1, "v": "c"}
-- {"at": "2024-01-01T00:30:00", "k": 1, "v": "d"}
-- {"at": "2024-01-01T00:40:00", "k": 1, "v": "e"}
-- literal: r (at TIMESTAMP, k INT, w TEXT)
-- {"at": "2024-01-01T00:00:05", "k": 1, "w": "x"}
-- {"at": "2024-01-01T00:09:50", "k": 1, "w": "y"}
-- {"at": "2024-01-01T00:10:00", "k": 1, "w": "z"}
-- {"at": "2024-01-01T00:00:01", "k": 1, "w": "late"}
-- {"at": "2024-01-01T00:20:00", "k": 1, "w": "u"}
-- {"at": "2024-01-01T00:40:00", "k": 1, "w": "t"}
-- delay: 5 seconds
-- epoch_rows: 1
INSERT INTO output
SELECT l.v, r.w FROM l JOIN r ON l.k = r.k AND r.at BETWEEN l.at AND l.at + INTERVAL '10 minutes';

-- expect output
SELECT l.v, r.w FROM l JOIN r ON l.k = r.k AND r.at BETWEEN l.at AND l.at + INTERVAL '10' MINUTE
WHERE l.v <> 'late' AND r.w <> 'late'
