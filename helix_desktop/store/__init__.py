"""Stores content and facts with LevelDB, SQLite and FTS5."""
