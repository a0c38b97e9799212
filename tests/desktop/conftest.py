"""What the trials of the window are given, for what tells something in it."""

from tests.gui.conftest import application, memory, theme

__all__ = ["application", "memory", "theme"]
