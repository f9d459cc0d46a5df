CREATE TABLE invoices (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents > 0));
CREATE TABLE charges (id text PRIMARY KEY, cents bigint NOT NULL, receipt text NOT NULL);
