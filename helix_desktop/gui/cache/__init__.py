"""The page of a workspace's entries: find, read and recall them."""
