"""What the agent can do, confined to the workspace and asked for first."""
