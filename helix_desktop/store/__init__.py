"""Where content and facts are kept: LevelDB, SQLite, FTS5."""
