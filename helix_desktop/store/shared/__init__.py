"""What several machines share: sealed rows on an engine that exists (PostgreSQL), behind the workspace's own LevelDB."""
