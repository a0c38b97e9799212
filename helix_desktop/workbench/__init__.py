"""Puts an open workspace together for the window and the command line alike. Knows no Qt."""

from helix_desktop.workbench.bench import Shared, Workbench, of
from helix_desktop.workbench.desk import Desk, alone

__all__ = ["Desk", "Shared", "Workbench", "alone", "of"]
