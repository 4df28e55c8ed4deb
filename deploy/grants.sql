-- The rights of people. Run this once the tables exist, as kairo_worker, who owns them, or as an administrator:
--   psql -v ON_ERROR_STOP=1 -d kairo -f grants.sql
GRANT USAGE ON SCHEMA kairo TO kairo_clerk, kairo_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA kairo TO kairo_clerk, kairo_reader;
GRANT UPDATE (decision, answered_by, answered_at), DELETE ON kairo.question TO kairo_clerk;
GRANT UPDATE (state, cancelled, epoch, updated_at) ON kairo.run TO kairo_clerk;
GRANT UPDATE (used_tokens, used_picos, aside_tokens, aside_picos, since, until) ON kairo.account TO kairo_clerk;
GRANT INSERT, UPDATE (used_tokens, used_picos, aside_tokens, aside_picos) ON kairo.ended_window TO kairo_clerk;
GRANT DELETE ON kairo.window_hold TO kairo_clerk;
GRANT UPDATE (used_tokens, used_picos, aside_tokens, aside_picos, epoch) ON kairo.charge TO kairo_clerk;
GRANT INSERT, UPDATE, DELETE ON kairo.queue TO kairo_clerk;
GRANT INSERT, UPDATE (answer), DELETE ON kairo.request TO kairo_clerk;
