"""Puts an open workspace together for the window and the command line alike. Knows no Qt."""

from helix_desktop.workbench.all_workbenches import Workbenches, use_workbench
from helix_desktop.workbench.open_workbench import ProgramDependencies, Workbench, workbench_of

__all__ = ["ProgramDependencies", "Workbench", "Workbenches", "use_workbench", "workbench_of"]
