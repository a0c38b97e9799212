-- The list of tasks of a workspace on one computer, in the steps in which versions added them.
CREATE TABLE tasks(position INTEGER PRIMARY KEY AUTOINCREMENT, space BLOB NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
 priority INTEGER NOT NULL, added REAL NOT NULL, deadline REAL NOT NULL, worker TEXT NOT NULL, until REAL NOT NULL,
 claims INTEGER NOT NULL, sealed BLOB NOT NULL, result BLOB NOT NULL, UNIQUE (space, id));
CREATE INDEX tasks_waiting ON tasks(space, state, priority DESC, position);
CREATE TABLE task_needs(space BLOB, task TEXT, needs TEXT, PRIMARY KEY (space, task, needs)) WITHOUT ROWID;
-- Next step
ALTER TABLE tasks ADD COLUMN charged REAL NOT NULL DEFAULT 0;
CREATE TABLE notes(space BLOB, name TEXT, until REAL NOT NULL, amount REAL NOT NULL, PRIMARY KEY (space, name)) WITHOUT ROWID;
-- Next step
-- What ended leaves the live table, so that claiming does not slow down as the history grows.
ALTER TABLE tasks ADD COLUMN open_needs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN setbacks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN avoided TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN reason TEXT NOT NULL DEFAULT '';
CREATE TABLE ended_tasks(position INTEGER PRIMARY KEY, space BLOB NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
 priority INTEGER NOT NULL, added REAL NOT NULL, deadline REAL NOT NULL, claims INTEGER NOT NULL, sealed BLOB NOT NULL,
 result BLOB NOT NULL, charged REAL NOT NULL, setbacks INTEGER NOT NULL, reason TEXT NOT NULL, ended REAL NOT NULL,
 UNIQUE (space, id));
CREATE INDEX task_needs_by_need ON task_needs(space, needs, task);
DELETE FROM task_needs WHERE EXISTS (SELECT 1 FROM tasks AS d WHERE d.space = task_needs.space AND d.id = task_needs.needs AND
 d.state = 'done');
UPDATE tasks SET state = 'cancelled', reason = 'needs' WHERE state = 'waiting' AND (space, id) IN (WITH RECURSIVE lost(space, id) AS
 (SELECT n.space, n.task FROM task_needs AS n JOIN tasks AS d ON d.space = n.space AND d.id = n.needs WHERE d.state IN ('failed',
 'cancelled') UNION SELECT n.space, n.task FROM task_needs AS n JOIN lost ON lost.space = n.space AND lost.id = n.needs) SELECT * FROM lost);
INSERT INTO ended_tasks SELECT position, space, id, state, priority, added, deadline, claims, sealed, result, charged, 0, reason,
 (julianday('now') - 2440587.5) * 86400.0 FROM tasks WHERE state IN ('done', 'failed', 'cancelled');
DELETE FROM tasks WHERE state IN ('done', 'failed', 'cancelled');
UPDATE tasks SET open_needs = (SELECT count(*) FROM task_needs AS n WHERE n.space = tasks.space AND n.task = tasks.id);
DROP INDEX tasks_waiting;
CREATE INDEX tasks_ready ON tasks(space, priority DESC, position, until, avoided) WHERE state = 'waiting' AND open_needs = 0;
CREATE INDEX tasks_running ON tasks(space, until) WHERE state = 'running';
CREATE INDEX tasks_by_state ON tasks(space, state, position);
CREATE INDEX tasks_by_position ON tasks(space, position);
CREATE INDEX tasks_by_deadline ON tasks(space, deadline) WHERE deadline > 0 AND state = 'waiting';
CREATE INDEX ended_tasks_by_state ON ended_tasks(space, state, position);
CREATE INDEX ended_tasks_by_position ON ended_tasks(space, position);
CREATE INDEX ended_tasks_by_time ON ended_tasks(space, ended);
-- Counts by state, the dollars spent ('cost'), and a number that grows with each change ('changes').
CREATE TABLE task_counts(space BLOB, slot INTEGER, name TEXT, amount REAL NOT NULL, PRIMARY KEY (space, slot, name)) WITHOUT ROWID;
INSERT INTO task_counts SELECT space, 0, state, count(*) FROM (SELECT space, state FROM tasks UNION ALL SELECT space, state FROM
 ended_tasks) GROUP BY space, state;
INSERT INTO task_counts SELECT space, 0, 'cost', sum(charged) FROM (SELECT space, charged FROM tasks UNION ALL SELECT space, charged FROM
 ended_tasks) GROUP BY space;
CREATE TRIGGER count_added_task AFTER INSERT ON tasks BEGIN
 INSERT INTO task_counts VALUES (NEW.space, 0, NEW.state, 1), (NEW.space, 0, 'changes', 1)
 ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER count_changed_task AFTER UPDATE ON tasks
WHEN OLD.state <> NEW.state OR OLD.claims <> NEW.claims OR OLD.worker <> NEW.worker OR OLD.charged <> NEW.charged BEGIN
 INSERT INTO task_counts VALUES (OLD.space, 0, OLD.state, -1), (NEW.space, 0, NEW.state, 1), (NEW.space, 0, 'changes', 1),
 (NEW.space, 0, 'cost', NEW.charged - OLD.charged) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER count_removed_task AFTER DELETE ON tasks BEGIN
 INSERT INTO task_counts VALUES (OLD.space, 0, OLD.state, -1), (OLD.space, 0, 'changes', 1)
 ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER count_ended_task AFTER INSERT ON ended_tasks BEGIN
 INSERT INTO task_counts VALUES (NEW.space, 0, NEW.state, 1), (NEW.space, 0, 'changes', 1)
 ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER count_removed_ended_task AFTER DELETE ON ended_tasks BEGIN
 INSERT INTO task_counts VALUES (OLD.space, 0, OLD.state, -1), (OLD.space, 0, 'changes', 1)
 ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
