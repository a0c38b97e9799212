-- The journal of a workspace. `store/conversation_rows.py` names the columns of conversations.
CREATE TABLE facts(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  conversation TEXT NOT NULL,
  seq INTEGER NOT NULL,
  time REAL NOT NULL,
  fact TEXT NOT NULL,
  digest BLOB NOT NULL,
  UNIQUE(conversation, seq)
);
CREATE TABLE conversations({columns}, PRIMARY KEY(id));
CREATE TABLE meters(conversation TEXT PRIMARY KEY, meter TEXT NOT NULL);
