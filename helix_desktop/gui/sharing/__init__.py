"""Sharing a workspace with other computers: the dialog, and what the window shows of it."""
