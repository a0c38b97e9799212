-- The tables of a shared store in PostgreSQL, in the steps in which versions added them.
CREATE TABLE helix.rows(name bytea NOT NULL, month date NOT NULL, space bytea NOT NULL, written timestamptz
  NOT NULL DEFAULT now(), key bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (name, month)) PARTITION BY
  RANGE (month);
-- Encrypted bytes cannot be compressed, so PostgreSQL need not try.
ALTER TABLE helix.rows ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE helix.forgotten(name bytea PRIMARY KEY, space bytea NOT NULL, mark bigserial NOT NULL, word
  bytea NOT NULL);
CREATE INDEX forgotten_mark ON helix.forgotten(space, mark);
CREATE TABLE helix.machines(space bytea, machine bytea, sealed bytea NOT NULL, PRIMARY KEY (space,
  machine));
CREATE TABLE helix.usage(space bytea, slot int, rows bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY
  (space, slot)) WITH (fillfactor = 50);
CREATE TABLE helix.quotas(space bytea PRIMARY KEY, bytes bigint NOT NULL);
-- Next step
CREATE TABLE helix.heads(space bytea, name bytea, version bigint NOT NULL, writer bytea NOT NULL, until
  timestamptz NOT NULL, changed bigint NOT NULL, sealed bytea NOT NULL, PRIMARY KEY (space, name)) WITH
  (fillfactor = 70);
CREATE INDEX heads_changed ON helix.heads(space, changed);
-- Next step
CREATE TABLE helix.tasks(space bytea, id text, position bigserial, state text NOT NULL, priority int NOT
  NULL, added float8 NOT NULL, deadline float8 NOT NULL, worker text NOT NULL, until float8 NOT NULL, claims
  int NOT NULL, sealed bytea NOT NULL, result bytea NOT NULL, PRIMARY KEY (space, id)) WITH (fillfactor = 70);
CREATE INDEX tasks_waiting ON helix.tasks(space, state, priority DESC, position);
CREATE TABLE helix.task_needs(space bytea, task text, needs text, PRIMARY KEY (space, task, needs));
-- Next step
ALTER TABLE helix.tasks ADD COLUMN charged float8 NOT NULL DEFAULT 0;
CREATE TABLE helix.notes(space bytea, name text, until float8 NOT NULL, amount float8 NOT NULL, PRIMARY KEY
  (space, name)) WITH (fillfactor = 70);
