"""What machines share: encrypted rows in an existing engine (PostgreSQL, S3), behind each one's own LevelDB."""
