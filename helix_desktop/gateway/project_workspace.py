"""Finds or creates a project's workspace. Each has its own, so no agent sees another
project's content.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace

LOCK = ".creating"
LONGEST_NAME = 60
LONGEST_NAME_WITH_PARENT = 75  # Without the brackets around the parent's name.


def find_project_workspace(
    known_workspaces: Sequence[KnownWorkspace], folder: Path
) -> KnownWorkspace | None:
    """Return the workspace for the folder, or for one above it in the same project."""
    workspaces_by_folder: dict[Path, KnownWorkspace] = {}
    # Of several with this folder, the first one: commands choose the same.
    for workspace in reversed(known_workspaces):
        for root in workspace.settings.roots:
            workspaces_by_folder[Path(root).resolve()] = workspace

    project = project_folder(folder)
    for possible_root in _folder_and_those_above(folder):
        if possible_root in workspaces_by_folder:
            return workspaces_by_folder[possible_root]
        if possible_root == project:
            break
    return None


def create_project_workspace(workspaces: AllWorkspaces, folder: Path) -> KnownWorkspace:
    """Create a workspace named after the project, and after the folder around it if the
    name is taken. Return the one that another process has created for the project meanwhile, if
    one has: several agents may start in a new folder at once.
    """
    with _only_process_to_create(workspaces):
        known_workspaces = workspaces.list_workspaces()
        existing = find_project_workspace(known_workspaces, folder)
        if existing is not None:
            return existing
        project = project_folder(folder)
        name = project.name[:LONGEST_NAME]
        taken_names = {workspace.name.casefold() for workspace in known_workspaces}
        if name.casefold() in taken_names:
            name_of_parent = project.parent.name[: LONGEST_NAME_WITH_PARENT - len(name)]
            name = f"{name} ({name_of_parent})"
        return workspaces.create_stored_workspace(name, project)


@contextmanager
def _only_process_to_create(workspaces: AllWorkspaces) -> Iterator[None]:
    """Wait until no other process is creating a workspace, and keep others waiting meanwhile."""
    atomic_files.ensure_private_folder(workspaces.folder)
    with (workspaces.folder / LOCK).open("ab") as file:
        atomic_files.lock_open_file(file.fileno(), waits=True)
        yield


def can_be_project_folder(folder: Path, home: Path) -> bool:
    """Whether the folder can be a project: neither the home folder nor one above it."""
    return folder != home and folder not in home.parents


def project_folder(folder: Path) -> Path:
    """Return the folder of the repository around it, or the folder itself."""
    home = Path.home().resolve()
    for possible_project in _folder_and_those_above(folder):
        is_repository = (possible_project / ".git").exists()
        if is_repository and can_be_project_folder(possible_project, home):
            return possible_project
    return folder


def _folder_and_those_above(folder: Path) -> list[Path]:
    folders = [folder]
    folders.extend(folder.parents)
    return folders
