"""What the trials of the window are given, for what tells something in it."""

from tests.gui.conftest import application, state_file, theme

__all__ = ["application", "state_file", "theme"]
