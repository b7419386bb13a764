-- A row that is late for some of the windows that grow is in the others; one late for all is left out.
-- literal: t (id INT, at TIMESTAMP)
-- {"id": 1, "at": "2024-01-01T00:01:00Z"}
-- {"id": 2, "at": "2024-01-01T00:12:00Z"}
-- {"id": 3, "at": "2024-01-01T00:02:00Z"}
-- {"id": 4, "at": "2024-01-01T00:26:00Z"}
-- {"id": 5, "at": "2024-01-01T00:27:00Z"}
-- {"id": 6, "at": "2024-01-01T00:03:00Z"}
-- {"id": 7, "at": "2024-01-01T00:21:00Z"}
-- {"id": 8, "at": "2024-01-01T01:00:00Z"}
-- epoch_rows: 1
INSERT INTO output
SELECT window.start AS start, window.end AS end, count(*) AS n, collect_list(id) AS ids
FROM t GROUP BY cumulate(INTERVAL '5 minutes', INTERVAL '20 minutes');

-- expect output
SELECT timestamp(concat('2024-01-01 ', start)), timestamp(concat('2024-01-01 ', end)), size(ids), ids
FROM VALUES
    ('00:00:00', '00:05:00', array(1)),
    ('00:00:00', '00:10:00', array(1)),
    ('00:00:00', '00:15:00', array(1, 3, 2)),
    ('00:00:00', '00:20:00', array(1, 3, 2)),
    ('00:20:00', '00:25:00', cast(array() AS ARRAY<INT>)),
    ('00:20:00', '00:30:00', array(7, 4, 5)),
    ('00:20:00', '00:35:00', array(7, 4, 5)),
    ('00:20:00', '00:40:00', array(7, 4, 5)),
    ('01:00:00', '01:05:00', array(8)),
    ('01:00:00', '01:10:00', array(8)),
    ('01:00:00', '01:15:00', array(8)),
    ('01:00:00', '01:20:00', array(8))
    AS v(start, end, ids)
WHERE size(ids) > 0
