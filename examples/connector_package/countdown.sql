CREATE TABLE numbers WITH (connector = 'countdown', first = 10);
SELECT number FROM numbers WHERE number % 2 = 0;
