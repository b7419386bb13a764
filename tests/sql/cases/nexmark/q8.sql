-- Nexmark q8: people who came and began to sell within the same ten seconds.
-- pipeline: examples/nexmark/q8.sql

-- expect q8
WITH auctions AS (SELECT auction.seller, date_trunc('minute', auction.datetime) AS minute, second(auction.datetime) DIV 10 AS ten
        FROM nexmark WHERE auction IS NOT NULL),
    people AS (SELECT person.id, person.name, date_trunc('minute', person.datetime) AS minute, second(person.datetime) DIV 10 AS ten
        FROM nexmark WHERE person IS NOT NULL)
SELECT DISTINCT p.id, p.name, p.minute + make_interval(0, 0, 0, 0, 0, 0, p.ten * 10)
FROM people p JOIN auctions a ON p.id = a.seller AND p.minute = a.minute AND p.ten = a.ten
