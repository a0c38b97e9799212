"""The Changes page: what the agent did to files, and how to undo it."""
