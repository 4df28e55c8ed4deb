-- Roles with least rights. An administrator runs this once in the database of the runs, before anything else uses it:
--   psql -v ON_ERROR_STOP=1 -d kairo -f roles.sql
-- Set the passwords separately, so that none is in a file: \password kairo_worker
-- After `kairo runs`, as kairo_worker, has created the tables, run grants.sql.

-- Creates the tables, begins runs, and works on them: `kairo worker`, `submit`, `run`, `resume`, `fork` and `forget`.
CREATE ROLE kairo_worker LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
-- Reads and answers: the console, `kairo answer`, `cancel`, `top-up`, `steer`, `pause`, `unpause` and `queue`.
CREATE ROLE kairo_clerk LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
-- Reads only: `kairo runs`, `show`, `events` and `report`.
CREATE ROLE kairo_reader LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;

DO $$
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO kairo_worker, kairo_clerk, kairo_reader', current_database());
    -- The journal and the delivery engine have schemas of their own.
    EXECUTE format('GRANT CREATE ON DATABASE %I TO kairo_worker', current_database());
END $$;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
