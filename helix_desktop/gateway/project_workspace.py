"""Finds or creates a project's workspace. Each has its own, so no agent sees another
project's content.
"""

from collections.abc import Sequence
from pathlib import Path

from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace

LONGEST_NAME = 60


def find_project_workspace(known: Sequence[KnownWorkspace], folder: Path) -> KnownWorkspace | None:
    """Return the workspace for the folder, or for one above it in the same project."""
    # Of several with this folder, the first one: commands choose the same.
    roots = {Path(root).resolve(): each for each in reversed(known) for root in each.settings.roots}
    project = project_folder(folder)
    between = [folder, *folder.parents]
    inside = between[: between.index(project) + 1]
    return next((roots[each] for each in inside if each in roots), None)


def create_project_workspace(workspaces: AllWorkspaces, folder: Path) -> KnownWorkspace:
    """Create a workspace named after the project, and after the folder around it if the
    name is taken.
    """
    project = project_folder(folder)
    name = project.name[:LONGEST_NAME]
    if name.casefold() in {each.name.casefold() for each in workspaces.list_workspaces()}:
        name = f"{name} ({project.parent.name[: 75 - len(name)]})"
    return workspaces.create_stored_workspace(name, project)


def can_be_project_folder(folder: Path, home: Path) -> bool:
    """Whether the folder can be a project: neither the home folder nor one above it."""
    return folder != home and folder not in home.parents


def project_folder(folder: Path) -> Path:
    """Return the folder of the repository around it, or the folder itself."""
    home = Path.home().resolve()
    above = (each for each in (folder, *folder.parents) if can_be_project_folder(each, home))
    return next((each for each in above if (each / ".git").exists()), folder)
