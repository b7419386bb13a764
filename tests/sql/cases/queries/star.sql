-- Every column, in the order of the table.
-- input: rides
-- long
INSERT INTO output SELECT * FROM rides;

-- expect output
SELECT * FROM rides
