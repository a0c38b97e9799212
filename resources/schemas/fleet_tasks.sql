-- The list of tasks of a workspace on one computer, in the steps in which versions added them.
CREATE TABLE tasks(position INTEGER PRIMARY KEY AUTOINCREMENT, space BLOB NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
 priority INTEGER NOT NULL, added REAL NOT NULL, deadline REAL NOT NULL, worker TEXT NOT NULL, until REAL NOT NULL,
 claims INTEGER NOT NULL, sealed BLOB NOT NULL, result BLOB NOT NULL, UNIQUE (space, id));
CREATE INDEX tasks_waiting ON tasks(space, state, priority DESC, position);
CREATE TABLE task_needs(space BLOB, task TEXT, needs TEXT, PRIMARY KEY (space, task, needs)) WITHOUT ROWID;
-- Next step
ALTER TABLE tasks ADD COLUMN charged REAL NOT NULL DEFAULT 0;
CREATE TABLE notes(space BLOB, name TEXT, until REAL NOT NULL, amount REAL NOT NULL, PRIMARY KEY (space, name)) WITHOUT ROWID;
