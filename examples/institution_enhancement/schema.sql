CREATE TABLE institution (
    bacen_cod_inst text PRIMARY KEY,
    cnpj text NOT NULL,
    name text NOT NULL,
    parent_name text NOT NULL,
    version integer NOT NULL,
    enhanced_at timestamptz NOT NULL DEFAULT now()
);
