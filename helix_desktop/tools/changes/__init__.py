"""Takes checkpoints of the workspace's folders in the content store, and restores files
from them.
"""
