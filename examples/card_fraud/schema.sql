CREATE SCHEMA fraud_gov;

CREATE TABLE fraud_gov.currencies (
    code text PRIMARY KEY
);
INSERT INTO fraud_gov.currencies VALUES ('EUR'), ('USD'), ('GBP');

CREATE TABLE fraud_gov.transactions (
    transaction_id text NOT NULL,
    evaluation_type text NOT NULL CHECK (evaluation_type IN ('PREAUTH', 'POSTAUTH')),
    transaction_timestamp timestamptz NOT NULL,
    -- business fields: written once, never changed by a repetition
    card_token text NOT NULL,
    amount numeric(14, 2) NOT NULL CHECK (amount >= 0),
    currency text NOT NULL REFERENCES fraud_gov.currencies,
    decision text,
    decision_reason text,
    -- metadata
    raw_payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (transaction_id, evaluation_type, transaction_timestamp),
    CHECK ((evaluation_type = 'PREAUTH') = (decision IS NOT NULL)),
    CHECK ((decision IS NULL) = (decision_reason IS NULL))
);
