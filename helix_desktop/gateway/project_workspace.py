"""Finds or creates the workspace of a project: one for each, so that no agent finds what another one saw."""

from collections.abc import Sequence
from pathlib import Path

from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace

LONGEST_NAME = 60


def find_project_workspace(known: Sequence[KnownWorkspace], folder: Path) -> KnownWorkspace | None:
    """The workspace that works on the folder, or on one above it within the same project."""
    roots = {Path(root).resolve(): each for each in known for root in each.settings.roots}
    project = project_folder(folder)
    between = [folder, *folder.parents]
    inside = between[: between.index(project) + 1]
    return next((roots[each] for each in inside if each in roots), None)


def create_project_workspace(workspaces: AllWorkspaces, folder: Path) -> KnownWorkspace:
    """A new workspace on the project, with its name, and the name of the folder it is in where another one is called so."""
    project = project_folder(folder)
    name = project.name[:LONGEST_NAME]
    if name.casefold() in {each.name.casefold() for each in workspaces.list_workspaces()}:
        name = f"{name} ({project.parent.name[: 75 - len(name)]})"
    return workspaces.create_stored_workspace(name, project)


def can_be_project_folder(folder: Path, home: Path) -> bool:
    """Whether the folder is somebody's work: neither the home folder nor one above it."""
    return folder != home and folder not in home.parents


def project_folder(folder: Path) -> Path:
    """The folder of the repository it is in, or the folder itself."""
    home = Path.home().resolve()
    above = (each for each in (folder, *folder.parents) if can_be_project_folder(each, home))
    return next((each for each in above if (each / ".git").exists()), folder)
