-- Every column, in the order of the table.
-- input: rides
INSERT INTO output SELECT * FROM rides;

-- expect output
SELECT * FROM rides
