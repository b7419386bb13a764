-- A Python function in a projection and a filter.
-- input: rides
-- functions
INSERT INTO output SELECT driver, doubled(driver) AS twice FROM rides WHERE doubled(driver) > 6;

-- expect output
SELECT driver, driver * 2 FROM rides WHERE driver * 2 > 6
