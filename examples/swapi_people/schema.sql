CREATE TABLE people (
    id integer PRIMARY KEY,
    name text NOT NULL,
    height_cm integer CHECK (height_cm > 0),
    mass_kg numeric CHECK (mass_kg > 0),
    birth_year text,
    edited text NOT NULL, -- as the API tells it: ISO 8601, in UTC
    updated_at timestamptz NOT NULL DEFAULT now()
);
