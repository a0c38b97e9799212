"""A desk as the workbench's own trials have it."""

from tests.workbench.conftest import desks, folder

__all__ = ["desks", "folder"]
