"""Tasks, workers and schedules of all workspaces."""
