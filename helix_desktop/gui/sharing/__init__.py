"""Sharing a workspace with other computers: the dialogs, and what the window shows of it."""
