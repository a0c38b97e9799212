"""Creates, finds, renames, trashes, imports and opens the workspaces in a folder.
Nothing crosses between them.
"""

import asyncio
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix_desktop import atomic_files, errors
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.processes.folders_of_agents import leave_out_of_search
from helix_desktop.store import workspace_export, workspace_settings
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_export import Report
from helix_desktop.store.workspace_lock import WorkspaceLock
from helix_desktop.store.workspace_settings import WorkspaceConfig

COLOURS = ("#0d7d74", "#8b5e3c", "#4a5fa5", "#7c4dcc", "#a8455d", "#3f7d3a", "#8a6d1b", "#4b6475")
_TRASH = ".trash"
_IMPORTING = ".importing-"


@dataclass(frozen=True, slots=True)
class KnownWorkspace:
    """A workspace as a list shows it, open or not. `mistake`: why its settings cannot
    be read, or empty. `left_out`: if it was imported just now, sentences about what
    could not be.
    """

    id: str
    folder: Path
    settings: WorkspaceConfig
    trashed: bool = False
    mistake: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.settings.name or self.id

    @property
    def first_folder(self) -> Path:
        for root in self.settings.roots:
            return Path(root)
        return Path.home()


class AllWorkspaces:
    """All workspaces in one folder (places.workspaces), and which of them are open here."""

    def __init__(self, folder: Path, *, count: Callable[[str], int] = lambda _: 0) -> None:
        self.folder = folder
        self._count = count
        self._open: dict[str, StoredWorkspace] = {}

    def list_workspaces(self, *, trashed: bool = False) -> tuple[KnownWorkspace, ...]:
        """Return the workspaces by name, including those whose settings have a mistake."""
        folders = self._list_workspace_folders(trashed=trashed)
        workspaces: list[KnownWorkspace] = []
        for folder in folders:
            workspaces.append(_read_workspace_description(folder, is_in_trash=trashed))
        workspaces.sort(key=lambda workspace: (workspace.name.casefold(), workspace.id))
        return tuple(workspaces)

    def _folder_of_workspaces(self, *, trashed: bool) -> Path:
        if trashed:
            return self.folder / _TRASH
        return self.folder

    def _list_workspace_folders(self, *, trashed: bool) -> list[Path]:
        parent = self._folder_of_workspaces(trashed=trashed)
        if not parent.is_dir():
            return []
        return [folder for folder in parent.iterdir() if _is_workspace_folder(folder)]

    def find_known_workspace(self, name_or_id: str, *, trashed: bool = False) -> KnownWorkspace:
        """Return the workspace with this id or, if only one has it, with this name."""
        folder = self._folder_of_workspaces(trashed=trashed) / name_or_id
        # Reading the settings of a thousand other workspaces takes a while.
        if folder.name == name_or_id and _is_workspace_folder(folder):
            return _read_workspace_description(folder, is_in_trash=trashed)
        workspaces = self.list_workspaces(trashed=trashed)
        name = name_or_id.casefold()
        with_id = [workspace for workspace in workspaces if workspace.id == name_or_id]
        with_name = [workspace for workspace in workspaces if workspace.name.casefold() == name]
        matching = with_id or with_name
        if not matching:
            raise _unknown_workspace_error(name_or_id, workspaces, trashed=trashed)
        if len(matching) > 1:
            ids = ", ".join(workspace.id for workspace in matching)
            raise errors.AmbiguousName(
                f"{len(matching)} workspaces are called {name_or_id}: {ids}.",
                remedy="Use the ID instead of the name.",
            )
        return matching[0]

    def check_usable_by_tools(self, folder: Path) -> None:
        """Refuse a folder inside the program's own data, where tools may only enter the
        tour's folder.
        """
        data_folder = self.folder.parent.resolve()
        real_folder = folder.resolve()
        if real_folder.is_relative_to(data_folder) and real_folder != data_folder / "tour":
            raise errors.ActionRefused(
                f"{folder} belongs to Helix Desktop, so tools cannot use it.",
                remedy="Choose another folder.",
            )

    def create_stored_workspace(self, name: str, folder: Path | None = None) -> KnownWorkspace:
        """Create a workspace's folder with its settings. If these cannot be written, the folder is
        deleted again.
        """
        name = _clean_workspace_name(name)
        roots: tuple[str, ...] = ()
        if folder is not None:
            roots = build_roots_of_folder(folder)
        workspace_folder = self._new_workspace_folder(name)
        colour = COLOURS[len(self.list_workspaces()) % len(COLOURS)]
        try:
            text = workspace_settings.new_settings_text(name, colour, roots)
            atomic_files.write_file_atomically(
                workspace_folder / workspace_settings.NAME, text, private=True
            )
        except errors.HelixError:
            delete_folder_tree(workspace_folder, ignore_errors=True)
            raise
        return _read_workspace_description(workspace_folder)

    def _new_workspace_folder(self, name: str) -> Path:
        """Create the folder of a new workspace. It is named like the workspace, as far as a
        path can be, with some random digits behind, as several may have the same name.
        """
        folder_name = secrets.token_hex(3)
        name_as_path = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40]
        if name_as_path:
            folder_name = f"{name_as_path}-{folder_name}"
        workspace_folder = self.folder / folder_name
        try:
            atomic_files.ensure_private_folder(self.folder)
            workspace_folder.mkdir(mode=0o700)
            atomic_files.make_path_private(workspace_folder)
        except OSError as error:
            raise errors.StoreFailed(
                f"The workspace's folder {workspace_folder} cannot be created: {error.strerror}."
            ) from error
        return workspace_folder

    def rename_workspace(self, name_or_id: str, name: str) -> KnownWorkspace:
        return self._change_workspace(name_or_id, {"name": _clean_workspace_name(name)})

    def recolour_workspace(self, name_or_id: str, colour: str) -> KnownWorkspace:
        return self._change_workspace(name_or_id, {"colour": colour})

    def change_roots(self, name_or_id: str, roots: tuple[str, ...]) -> KnownWorkspace:
        return self._change_workspace(name_or_id, {"roots": list(roots)})

    def _change_workspace(self, name_or_id: str, changes: Mapping[str, Any]) -> KnownWorkspace:
        """Change settings of a workspace: through the open workspace, which then knows them, or
        in its file.
        """
        known = self.find_known_workspace(name_or_id)
        workspace = self._open.get(known.id)
        if workspace is not None:
            workspace.change_settings(changes)
        else:
            workspace_settings.change_workspace_settings(
                known.folder / workspace_settings.NAME, changes
            )
        return _read_workspace_description(known.folder)

    def trash_workspace(self, name_or_id: str) -> KnownWorkspace:
        """Move a closed workspace to the trash, with everything in it."""
        return self._move_workspace(
            self.find_known_workspace(name_or_id), self.folder / _TRASH, trashed=True
        )

    def restore_workspace(self, name_or_id: str) -> KnownWorkspace:
        return self._move_workspace(
            self.find_known_workspace(name_or_id, trashed=True), self.folder, trashed=False
        )

    def _move_workspace(self, known: KnownWorkspace, to: Path, *, trashed: bool) -> KnownWorkspace:
        """Move a workspace to the trash or back, by renaming its folder. Its lock is held, so it is
        open in no program meanwhile.
        """
        lock = WorkspaceLock(known.folder / "lock")
        try:
            atomic_files.ensure_private_folder(to)
            moved = to / known.id
            if moved.exists():
                raise errors.InvalidInput(f"The workspace {known.id} already exists at {to}.")
            if os.name == "nt":  # Windows can't move a folder in which a file is open.
                lock.release_lock()
            known.folder.rename(moved)
            atomic_files.sync_folder_to_disk(to)
            atomic_files.sync_folder_to_disk(known.folder.parent)
        except OSError as error:
            raise errors.StoreFailed(
                f"{known.name} could not be moved: {error.strerror}.", remedy="Nothing was changed."
            ) from error
        finally:
            lock.release_lock()
        return _read_workspace_description(moved, is_in_trash=trashed)

    def delete_workspace(self, name_or_id: str) -> None:
        """Delete a workspace of the trash for good. Raises StoreBusy if it is open in any
        program.
        """
        known = self.find_known_workspace(name_or_id, trashed=True)
        WorkspaceLock(known.folder / "lock").release_lock()  # Fails if a program has it open.
        try:
            delete_folder_tree(known.folder)
        except OSError as error:
            raise errors.StoreFailed(
                f"{known.name} could not be removed completely: {error.strerror}.",
                remedy="The remaining files are in the trash.",
            ) from error

    async def import_workspace(
        self, path: Path, *, name: str = "", report: Report = workspace_export.ignore_progress
    ) -> KnownWorkspace:
        """Create a workspace from an export. What the file asks for (folders,
        permissions, MCP servers) is only proposed.

        The export is unpacked into a folder with a hidden name, which only gets its own name
        when all is there: if this fails or is cancelled, nothing is left behind. What could
        not be imported is listed in the new workspace's `notes.txt`. `report` is called on
        the loop with the bytes done and their total.
        """
        workspace_export.read_export_manifest(path)
        new_name = ""
        if name:
            new_name = _clean_workspace_name(name)
        workspace_folder = self._new_workspace_folder(new_name or path.stem)
        hidden_folder = workspace_folder.with_name(f"{_IMPORTING}{workspace_folder.name}")
        lock = _hide_and_lock_import_folder(workspace_folder, hidden_folder)
        thread = StoreThread("import")
        loop = asyncio.get_running_loop()
        stop_requested = threading.Event()

        def report_or_stop_import(done: int, total: int) -> None:
            if stop_requested.is_set():
                raise errors.StoppedByUser("The import was stopped.")
            loop.call_soon_threadsafe(report, done, total)

        try:
            notes = await thread.run_work(
                workspace_export.unpack_export,
                path,
                hidden_folder,
                name=new_name,
                report=report_or_stop_import,
            )
            if notes:
                atomic_files.write_file_atomically(
                    hidden_folder / "notes.txt", "\n".join(notes) + "\n", private=True
                )
            if os.name == "nt":  # Windows can't move a folder in which a file is open.
                lock.release_lock()
            hidden_folder.rename(workspace_folder)
        except BaseException:
            stop_requested.set()
            await thread.run_work(delete_folder_tree, hidden_folder, ignore_errors=True)
            raise
        finally:
            lock.release_lock()
            await thread.aclose()
        known = self._recolour_if_another_has_colour(_read_workspace_description(workspace_folder))
        return replace(known, left_out=tuple(notes))

    def _recolour_if_another_has_colour(self, imported: KnownWorkspace) -> KnownWorkspace:
        """Tell an imported workspace from the one that it was exported from, which may be here."""
        others = [known for known in self.list_workspaces() if known.id != imported.id]
        used_colours = {known.settings.colour for known in others}
        if imported.settings.colour not in used_colours:
            return imported
        free_colours = [colour for colour in COLOURS if colour not in used_colours]
        if not free_colours:
            return imported
        return self.recolour_workspace(imported.id, free_colours[0])

    async def open_stored_workspace(self, name_or_id: str) -> StoredWorkspace:
        """Open a workspace as its owner. Raises StoreBusy if it is already open, here
        or elsewhere.
        """
        known = self.find_known_workspace(name_or_id)
        if known.id in self._open:
            raise errors.StoreBusy(
                f"{known.name} is already open in this program.",
                remedy="Use the workspace in the window where it is open.",
            )
        workspace = await StoredWorkspace.open(known.folder, count=self._count)
        self._open[known.id] = workspace
        workspace.closed = lambda: self._open.pop(known.id, None)
        return workspace

    def remove_interrupted_imports_and_writes(self) -> tuple[str, ...]:
        """Remove what killed imports and writes left behind, unless still in use.
        Returns sentences about it.
        """
        sentences = []
        for folder in self.folder.glob(f"{_IMPORTING}*"):
            with suppress(errors.HelixError):  # StoreBusy: an import may still use the folder.
                WorkspaceLock(folder / "lock").release_lock()
                delete_folder_tree(folder, ignore_errors=True)
                outcome = "was removed"
                if folder.exists():
                    outcome = "could not be removed completely"
                sentences.append(
                    f"An import was interrupted. What it left in {folder.name} {outcome}."
                )
        for path in atomic_files.find_abandoned_files(self.folder.parent):
            with suppress(OSError):
                path.unlink()
                sentences.append(f"An unfinished file was removed: {path.name}.")
        return tuple(sentences)

    def workspaces_open_here(self) -> Mapping[str, StoredWorkspace]:
        return dict(self._open)


def _unknown_workspace_error(
    name: str, workspaces: Sequence[KnownWorkspace], *, trashed: bool
) -> errors.NotFound:
    """Say that there is no such workspace, and which there are: by their names, or by their ids
    where several have the same name. `trashed`: the trash was searched.
    """
    if not workspaces and not trashed:
        return errors.NotFound(
            f"There is no workspace {name}.",
            remedy="To create one, run `helix-desktop workspace new NAME --folder FOLDER`.",
        )
    name_counts = Counter(workspace.name for workspace in workspaces)
    shown_names = []
    for workspace in workspaces:
        if name_counts[workspace.name] == 1:
            shown_names.append(workspace.name)
        else:
            shown_names.append(workspace.id)
    missing = f"There is no workspace {name}."
    if trashed:
        missing = f"There is no workspace {name} in the trash."
    available = ", ".join(shown_names) or "none"
    return errors.NotFound(missing, remedy=f"Available: {available}.")


def _hide_and_lock_import_folder(folder: Path, hidden_folder: Path) -> WorkspaceLock:
    """Rename an import's folder to its hidden name and lock it, which tells others that
    the import goes on.
    """
    if os.name == "nt":
        folder.rename(hidden_folder)
        return WorkspaceLock(hidden_folder / "lock")
    lock = WorkspaceLock(folder / "lock")
    folder.rename(hidden_folder)
    return lock


def _is_workspace_folder(folder: Path) -> bool:
    """Whether this is a workspace. One that lost its settings still has its conversations."""
    if folder.name.startswith("."):
        return False
    settings = folder / workspace_settings.NAME
    return settings.is_file() or (folder / "journal.sqlite3").is_file()


def _read_workspace_description(folder: Path, *, is_in_trash: bool = False) -> KnownWorkspace:
    try:
        settings = workspace_settings.read_workspace_settings(folder / workspace_settings.NAME)
        # Whoever lists workspaces may also start programs, such as the browser or ssh.
        leave_out_of_search(settings.roots)
        return KnownWorkspace(folder.name, folder, settings, is_in_trash)
    except errors.HelixError as error:
        return KnownWorkspace(
            folder.name, folder, WorkspaceConfig(name=folder.name), is_in_trash, str(error)
        )


def build_roots_of_folder(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise errors.NotFound(
            f"{folder} is not a folder.",
            remedy="Create the folder first, or choose another folder.",
        )
    return (str(folder.resolve()),)


def _clean_workspace_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 80:
        raise errors.InvalidInput("A workspace name must be 1 to 80 characters long.")
    return name
