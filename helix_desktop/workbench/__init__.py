"""Puts an open workspace together for the window and the command line alike. Knows no Qt."""

from helix_desktop.workbench.all_workbenches import Workbenches, open_single_workbench, use_workbench
from helix_desktop.workbench.open_workbench import ProgramDependencies, Workbench, workbench_of

__all__ = ["ProgramDependencies", "Workbench", "Workbenches", "open_single_workbench", "use_workbench", "workbench_of"]
