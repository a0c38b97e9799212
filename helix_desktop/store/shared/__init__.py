"""What several machines share: sealed rows on an engine that exists (PostgreSQL, S3), behind the workspace's own LevelDB."""
