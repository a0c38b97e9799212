"""Puts an open workspace together for the window and the command line alike. Knows no Qt."""

from helix_desktop.workbench.bench import Shared, Workbench, of
from helix_desktop.workbench.desk import Desk, alone
from helix_desktop.workbench.rows import ConversationRow

__all__ = ["ConversationRow", "Desk", "Shared", "Workbench", "alone", "of"]
