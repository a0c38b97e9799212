"""The safety net: the workspace's folders as checkpoints in the content store, and putting them back."""
