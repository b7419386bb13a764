-- Count, sum, min, max, avg over numbers, decimals, text and time.
-- input: rides
INSERT INTO output
SELECT window.start AS start, kind, count(price) AS priced, sum(driver) AS drivers, min(price) AS least,
    max(kind) AS last_kind, min(at) AS first_at, avg(price) AS mean_price, avg(km) AS mean_km
FROM rides GROUP BY tumble(INTERVAL '20 minutes'), kind;

-- expect output
SELECT window.start, kind, count(price), sum(driver), min(price), max(kind), min(at), avg(price), avg(km)
FROM rides GROUP BY window(at, '20 minutes'), kind
