"""Checkpoints of the workspace's folders in the content store, and restoring files from them."""
