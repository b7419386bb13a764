-- Nexmark q8: people who came and began to sell within the same ten seconds.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q8 WITH (connector = 'filesystem', path = 'out/q8', format = 'parquet', type = 'sink');

CREATE VIEW people AS
SELECT person.id AS id, person.name AS name
FROM nexmark WHERE person IS NOT NULL;

CREATE VIEW auctions AS
SELECT auction.seller AS seller
FROM nexmark WHERE auction IS NOT NULL;

INSERT INTO q8
SELECT p.id, p.name, p.window.start AS start
FROM (
    SELECT tumble(INTERVAL '10 seconds') AS window, id, name, count(*) AS came
    FROM people
    GROUP BY window, id, name
) AS p
JOIN (
    SELECT tumble(INTERVAL '10 seconds') AS window, seller, count(*) AS sold
    FROM auctions
    GROUP BY window, seller
) AS a ON p.id = a.seller AND p.window = a.window;
