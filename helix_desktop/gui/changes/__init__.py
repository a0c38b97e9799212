"""The page of changes: what the agent did to files, and taking it back."""
