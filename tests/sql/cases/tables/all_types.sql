-- A column of every type, through a source and a sink.
-- literal: events (at TIMESTAMP, b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(10,3), x TEXT, y DATE, a ARRAY<INT>, p MAP<TEXT, INT>)
-- {"at": "2024-01-01T00:00:01", "b": true, "t": 127, "s": -32768, "i": 2147483647, "l": -9223372036854775808, "f": 1.5, "d": -0.25, "m": 1234567.891, "x": "naïve ☃", "y": "2024-02-29", "a": [1, null, 3], "p": {"k": 1}}
-- {"at": "2024-01-01T00:00:02", "b": false, "t": -128, "s": 32767, "i": -2147483648, "l": 9223372036854775807, "f": -3.25, "d": 1e300, "m": -0.001, "x": "", "y": "1582-10-15", "a": [], "p": {}}
-- {"at": null, "b": null, "t": null, "s": null, "i": null, "l": null, "f": null, "d": null, "m": null, "x": null, "y": null, "a": null, "p": null}
INSERT INTO output SELECT * FROM events;

-- expect output
SELECT * FROM events
