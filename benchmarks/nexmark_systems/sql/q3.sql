-- Nexmark q3: who sells in some states: a join without a window.
-- changelog: Resurgence

-- in Spark
SELECT p.name, p.city, p.state, a.id
FROM auctions a
JOIN people p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')

-- in Flink
SELECT p.name, p.city, p.state, a.id
FROM auctions a
JOIN people p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
