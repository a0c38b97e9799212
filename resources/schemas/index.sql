-- The index of a workspace: its entries, their uses, and the words of entries and messages.
CREATE TABLE entries(
  number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, tool TEXT NOT NULL, source TEXT NOT NULL, media TEXT NOT NULL,
  size INTEGER NOT NULL, kept INTEGER NOT NULL, lines INTEGER NOT NULL, tokens INTEGER NOT NULL, time REAL NOT NULL,
  uses INTEGER NOT NULL, recalled REAL NOT NULL, pinned INTEGER NOT NULL, state INTEGER NOT NULL);
CREATE INDEX by_pinned ON entries(number) WHERE pinned;
CREATE INDEX by_state ON entries(state, number) WHERE state;
CREATE TABLE sources(source TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE uses(
  digest BLOB NOT NULL, conversation TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, how TEXT NOT NULL,
  PRIMARY KEY(digest, conversation, seq, how)) WITHOUT ROWID;
CREATE TABLE members(conversation TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY(conversation, number)) WITHOUT ROWID;
CREATE TABLE pieces(
  id INTEGER PRIMARY KEY, number INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
  conversation TEXT NOT NULL, seq INTEGER NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(text, content='', detail=none, columnsize=0, tokenize='{search_words.TOKENIZER}');
INSERT INTO words(words, rank) VALUES('hashsize', 8388608);
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
