"""The page of a workspace's entries: find any of them, see it, take it back into the conversation."""
