"""Finds or creates a project's workspace. Each has its own, so no agent sees another
project's content.
"""

from collections.abc import Sequence
from pathlib import Path

from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace

LONGEST_NAME = 60


def find_project_workspace(known: Sequence[KnownWorkspace], folder: Path) -> KnownWorkspace | None:
    """Return the workspace for the folder, or for one above it in the same project."""
    workspaces: dict[Path, KnownWorkspace] = {}
    # Of several with this folder, the first one: commands choose the same.
    for workspace in reversed(known):
        for root in workspace.settings.roots:
            workspaces[Path(root).resolve()] = workspace
    project = project_folder(folder)
    for place in _folder_and_those_above(folder):
        if place in workspaces:
            return workspaces[place]
        if place == project:
            break
    return None


def create_project_workspace(workspaces: AllWorkspaces, folder: Path) -> KnownWorkspace:
    """Create a workspace named after the project, and after the folder around it if the
    name is taken.
    """
    project = project_folder(folder)
    name = project.name[:LONGEST_NAME]
    taken_names = {workspace.name.casefold() for workspace in workspaces.list_workspaces()}
    if name.casefold() in taken_names:
        name = f"{name} ({project.parent.name[: 75 - len(name)]})"
    return workspaces.create_stored_workspace(name, project)


def can_be_project_folder(folder: Path, home: Path) -> bool:
    """Whether the folder can be a project: neither the home folder nor one above it."""
    return folder != home and folder not in home.parents


def project_folder(folder: Path) -> Path:
    """Return the folder of the repository around it, or the folder itself."""
    home = Path.home().resolve()
    for place in _folder_and_those_above(folder):
        if can_be_project_folder(place, home) and (place / ".git").exists():
            return place
    return folder


def _folder_and_those_above(folder: Path) -> list[Path]:
    folders = [folder]
    folders.extend(folder.parents)
    return folders
