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
-- Next step
-- What version 0.2 left is kept as it was, in case that version is needed again.
DO $$ BEGIN IF EXISTS (SELECT 1 FROM helix.tasks) THEN
  CREATE TABLE helix.tasks_of_0_2 AS TABLE helix.tasks;
  CREATE TABLE helix.task_needs_of_0_2 AS TABLE helix.task_needs;
END IF; END $$;
-- What ended leaves the live table, so that claiming does not slow down as the history grows.
ALTER TABLE helix.tasks ADD COLUMN open_needs int NOT NULL DEFAULT 0, ADD COLUMN setbacks int NOT NULL DEFAULT
  0, ADD COLUMN avoided text NOT NULL DEFAULT '', ADD COLUMN reason text NOT NULL DEFAULT '';
CREATE TABLE helix.ended_tasks(space bytea, id text, position bigint NOT NULL, state text NOT NULL, priority int
  NOT NULL, added float8 NOT NULL, deadline float8 NOT NULL, claims int NOT NULL, sealed bytea NOT NULL, result
  bytea NOT NULL, charged float8 NOT NULL, setbacks int NOT NULL, reason text NOT NULL, ended float8 NOT NULL,
  PRIMARY KEY (space, id));
CREATE INDEX task_needs_by_need ON helix.task_needs(space, needs, task);
DELETE FROM helix.task_needs AS n USING helix.tasks AS d WHERE d.space = n.space AND d.id = n.needs AND d.state =
  'done';
WITH RECURSIVE lost(space, id) AS (SELECT n.space, n.task FROM helix.task_needs AS n JOIN helix.tasks AS d ON
  d.space = n.space AND d.id = n.needs WHERE d.state IN ('failed', 'cancelled') UNION SELECT n.space, n.task FROM
  helix.task_needs AS n JOIN lost ON lost.space = n.space AND lost.id = n.needs) UPDATE helix.tasks AS t SET state
  = 'cancelled', reason = 'needs' FROM lost WHERE t.space = lost.space AND t.id = lost.id AND t.state = 'waiting';
INSERT INTO helix.ended_tasks SELECT space, id, position, state, priority, added, deadline, claims, sealed,
  result, charged, 0, reason, extract(epoch FROM clock_timestamp())::float8 FROM helix.tasks WHERE state IN
  ('done', 'failed', 'cancelled');
DELETE FROM helix.tasks WHERE state IN ('done', 'failed', 'cancelled');
UPDATE helix.tasks AS t SET open_needs = (SELECT count(*) FROM helix.task_needs AS n WHERE n.space = t.space AND
  n.task = t.id);
DROP INDEX helix.tasks_waiting;
CREATE INDEX tasks_ready ON helix.tasks(space, priority DESC, position, until, avoided) WHERE state = 'waiting' AND
  open_needs = 0;
CREATE INDEX tasks_running ON helix.tasks(space, until) WHERE state = 'running';
CREATE INDEX tasks_by_state ON helix.tasks(space, state, position);
CREATE INDEX tasks_by_position ON helix.tasks(space, position);
CREATE INDEX tasks_by_deadline ON helix.tasks(space, deadline) WHERE deadline > 0 AND state = 'waiting';
CREATE INDEX ended_tasks_by_state ON helix.ended_tasks(space, state, position);
CREATE INDEX ended_tasks_by_position ON helix.ended_tasks(space, position);
CREATE INDEX ended_tasks_by_time ON helix.ended_tasks(space, ended);
-- Counts by state, the dollars spent ('cost'), and a number that grows with each change ('changes'). A connection
-- adds to a slot of its own, so that workers do not wait for each other.
CREATE TABLE helix.task_counts(space bytea, slot int, name text, amount float8 NOT NULL, PRIMARY KEY (space, slot,
  name)) WITH (fillfactor = 50);
INSERT INTO helix.task_counts SELECT space, 0, state, count(*) FROM (SELECT space, state FROM helix.tasks UNION ALL
  SELECT space, state FROM helix.ended_tasks) AS known GROUP BY space, state;
INSERT INTO helix.task_counts SELECT space, 0, 'cost', sum(charged) FROM (SELECT space, charged FROM helix.tasks
  UNION ALL SELECT space, charged FROM helix.ended_tasks) AS known GROUP BY space;
-- Every transaction touches the slot's row 'changes' first, which keeps two of them from waiting for each other.
CREATE FUNCTION helix.add_to_task_count(of bytea, named text, more float8) RETURNS void LANGUAGE sql AS $$
  INSERT INTO helix.task_counts AS c VALUES (of, pg_backend_pid() % 64, 'changes', 1) ON CONFLICT (space, slot, name)
  DO UPDATE SET amount = c.amount + 1;
  INSERT INTO helix.task_counts AS c VALUES (of, pg_backend_pid() % 64, named, more) ON CONFLICT (space, slot, name)
  DO UPDATE SET amount = c.amount + excluded.amount;
$$;
CREATE FUNCTION helix.count_task() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' THEN
    PERFORM helix.add_to_task_count(OLD.space, OLD.state, -1);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    PERFORM helix.add_to_task_count(NEW.space, NEW.state, 1);
  END IF;
  IF TG_OP = 'UPDATE' THEN
    IF NEW.charged <> OLD.charged THEN
      PERFORM helix.add_to_task_count(NEW.space, 'cost', NEW.charged - OLD.charged);
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER count_task AFTER INSERT OR DELETE ON helix.tasks FOR EACH ROW EXECUTE FUNCTION helix.count_task();
CREATE TRIGGER count_changed_task AFTER UPDATE ON helix.tasks FOR EACH ROW WHEN (OLD.state <> NEW.state OR
  OLD.claims <> NEW.claims OR OLD.worker <> NEW.worker OR OLD.charged <> NEW.charged) EXECUTE FUNCTION
  helix.count_task();
CREATE TRIGGER count_task AFTER INSERT OR DELETE ON helix.ended_tasks FOR EACH ROW EXECUTE FUNCTION helix.count_task();
-- Next step
-- The queue is procrastinate's: the number of a task's job there, or nothing if it cannot run.
ALTER TABLE helix.tasks ADD COLUMN job bigint, DROP COLUMN avoided;
CREATE INDEX tasks_without_job ON helix.tasks(space, priority DESC, position) WHERE state = 'waiting' AND open_needs = 0 AND job IS NULL;
CREATE UNIQUE INDEX tasks_by_job ON helix.tasks(job) WHERE job IS NOT NULL;
-- Next step
-- When tasks are added by themselves. What a schedule says is encrypted.
CREATE TABLE helix.schedules(space bytea, id text, handled float8 NOT NULL, sealed bytea NOT NULL, PRIMARY KEY (space, id));
-- Next step
-- How many rows a workspace has is guessed from the size of the table. What PostgreSQL had counted was about the
-- workspaces that were there then: for a newer one it expected a single row, so it looked for each task by reading
-- all of the workspace. Setting the type again, which changes nothing else, removes what was counted.
ALTER TABLE helix.tasks ALTER COLUMN space SET STATISTICS 0;
ALTER TABLE helix.tasks ALTER COLUMN space TYPE bytea;
ALTER TABLE helix.task_needs ALTER COLUMN space SET STATISTICS 0;
ALTER TABLE helix.task_needs ALTER COLUMN space TYPE bytea;
ALTER TABLE helix.ended_tasks ALTER COLUMN space SET STATISTICS 0;
ALTER TABLE helix.ended_tasks ALTER COLUMN space TYPE bytea;
ALTER TABLE helix.notes ALTER COLUMN space SET STATISTICS 0;
ALTER TABLE helix.notes ALTER COLUMN space TYPE bytea;
ALTER TABLE helix.task_counts ALTER COLUMN space SET STATISTICS 0;
ALTER TABLE helix.task_counts ALTER COLUMN space TYPE bytea;
ALTER TABLE helix.heads ALTER COLUMN space SET STATISTICS 0;
ALTER TABLE helix.heads ALTER COLUMN space TYPE bytea;
