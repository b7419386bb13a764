-- Nexmark q3: who sells in some states: a join without a window.
-- pipeline: examples/nexmark/q3.sql

-- expect q3
WITH auctions AS (SELECT auction.* FROM nexmark WHERE auction IS NOT NULL), people AS (SELECT person.* FROM nexmark WHERE person IS NOT NULL)
SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN people p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
