"""What the trials of the soak are given, for what counts objects of Qt."""

from tests.gui.conftest import application

__all__ = ["application"]
