"""Stores content and facts, by LevelDB, SQLite and FTS5."""
