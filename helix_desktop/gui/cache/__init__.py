"""The page of a workspace's entries: find any, see it, take it back into the conversation."""
