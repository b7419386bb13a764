-- Nexmark q3: who sells in some states: a join without a window.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q3 WITH (connector = 'single_file', path = 'out/q3.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW auctions AS
SELECT auction.id AS id, auction.seller AS seller, auction.category AS category
FROM nexmark WHERE auction IS NOT NULL;

CREATE VIEW people AS
SELECT person.id AS id, person.name AS name, person.city AS city, person.state AS state
FROM nexmark WHERE person IS NOT NULL;

INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auctions a
JOIN people p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');
