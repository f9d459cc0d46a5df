CREATE TABLE deals (
    id text PRIMARY KEY,
    funded boolean NOT NULL DEFAULT false,
    paid integer NOT NULL DEFAULT 0,
    refunded integer NOT NULL DEFAULT 0,
    ends_at timestamptz, -- its deadline
    ended_at timestamptz, -- by the timeout worker
    refunding boolean NOT NULL DEFAULT false
);
CREATE INDEX unsettled_deals ON deals (ends_at) WHERE paid + refunded = 0;

-- What each consumer has done, by the key that the sender gave it: nothing is done twice.
CREATE TABLE effects (
    consumer text NOT NULL,
    idempotency_key text NOT NULL,
    deal_id text NOT NULL,
    kind text NOT NULL,
    done_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, idempotency_key)
);
