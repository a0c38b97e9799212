"""What can be done with whole workspaces: rename, another colour, other folders, to a file and back, trash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.lasting import Lasting
from helix_desktop.gui.frame.workspace_trash import TrashDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Imported, Workbench, WorkspaceRow
from helix_desktop.gui.questions import ask_file, ask_folder, ask_new_file, ask_text
from helix_desktop.gui.save_text import file_name
from helix_desktop.gui.tokens import WORKSPACE_COLOURS
from helix_desktop.gui.words import count, tr

SUFFIX = ".helix"
STAYS = 60_000


class WorkspaceActs:
    def __init__(self, window: MainWindow) -> None:
        self._window = window

    def do(self, what: str, workspace: str) -> None:
        """One of the names of the rail's menu."""
        row = next((row for row in self._window.workspaces() if row.id == workspace), None)
        if row is None:
            return
        acts = {
            "rename": self.rename,
            "recolour": self.recolour,
            "settings": self.settings,
            "folders": self.folders,
            "export": self.export,
            "trash": self.trash,
        }
        acts[what](row)

    def rename(self, row: WorkspaceRow) -> None:
        window = self._window

        def named(name: str) -> None:
            window.doing.do(
                window.desk.rename(row.id, name), name="rename a workspace", then=lambda _d: self._renamed()
            )

        ask_text(window, tr("Rename workspace"), tr("Name"), row.name, named)

    def recolour(self, row: WorkspaceRow) -> None:
        """The next one of the table: each of them can be read."""
        at = WORKSPACE_COLOURS.index(row.colour) if row.colour in WORKSPACE_COLOURS else -1
        colour = WORKSPACE_COLOURS[(at + 1) % len(WORKSPACE_COLOURS)]
        work = self._window.desk.recolour(row.id, colour)
        self._window.doing.do(work, name="recolour a workspace", then=lambda _d: self._window.refresh_workspaces())

    def settings(self, row: WorkspaceRow) -> None:
        self._window.open_workspace(row.id, lambda: self._window.settings_wanted.emit("workspace"))

    def trash(self, row: WorkspaceRow) -> None:
        window = self._window

        def undo() -> None:
            window.doing.do(
                window.desk.restore(row.id), name="restore a workspace", then=lambda _d: window.refresh_workspaces()
            )

        def told(_done: None) -> None:
            window.workspace_gone(row.id)
            words = tr("“{name}” was moved to the trash. Its folder was not changed.", name=row.name)
            window.notices.tell(words, act=undo)

        window.doing.do(window.desk.trash(workspace=row.id), name="trash a workspace", then=told)

    # --- other folders

    def folders(self, row: WorkspaceRow) -> None:
        """Another folder to work on, in place of those it has."""
        self._window.open_workspace(row.id, lambda: self.choose_folder(row.id))

    def choose_folder(self, workspace: str) -> None:
        ask_folder(self._window, tr("Workspace folder"), lambda path: self._set(workspace, [path]))

    def _set(self, workspace: str, folders: Sequence[Path]) -> None:
        window = self._window

        def told(bench: Workbench) -> None:
            window.notices.tell(tr("“{name}” now uses {folder}.", name=bench.name, folder=bench.folder))

        window.open_anew(workspace, window.desk.set_folders(workspace, folders), told)

    # --- to a file and back

    def export(self, row: WorkspaceRow) -> None:
        """History and cache as one file; keys never."""
        name = file_name(row.name, "workspace") + SUFFIX
        ask_new_file(self._window, tr("Export workspace"), name, partial(self._export_to, row))

    def _export_to(self, row: WorkspaceRow, path: Path) -> None:
        window = self._window
        lasting = Lasting(tr("Exporting “{name}”", name=row.name), window)
        lasting.rejected.connect(lambda: window.notices.tell(tr("Export stopped. Nothing was written.")))
        words = tr("“{name}” was exported to {file}: history and cache, without keys.", name=row.name, file=path.name)

        def told(damaged: Sequence[str]) -> None:
            if damaged:
                names = ", ".join(name[:12] for name in damaged[:3]) + (", …" if len(damaged) > 3 else "")
                left_out = count(
                    len(damaged),
                    "{n} entry is damaged and was left out:",
                    "{n} entries are damaged and were left out:",
                )
                window.notices.tell(f"{words}\n{left_out} {names}", stays=STAYS)
            else:
                window.notices.tell(words)

        work = window.desk.export(row.id, path, lasting.report)
        lasting.follow(window.doing, work, told, window.notices.tell_error)

    def import_(self) -> None:
        patterns = tr("Exported workspaces ({pattern})", pattern=f"*{SUFFIX}")
        ask_file(self._window, tr("Import workspace"), patterns, self.import_from)

    def import_from(self, path: Path) -> None:
        window = self._window
        lasting = Lasting(tr("Importing {file}", file=path.name), window)
        lasting.rejected.connect(lambda: window.notices.tell(tr("Import stopped. Nothing was added.")))
        work = window.desk.import_(path, report=lasting.report)
        lasting.follow(window.doing, work, self._imported, window.notices.tell_error)

    def _imported(self, imported: Imported) -> None:
        window = self._window
        window.refresh_workspaces()
        window.open_workspace(imported.id, lambda: self._say_imported(imported))

    def _say_imported(self, imported: Imported) -> None:
        """What came, what could not, and that nothing of it is in force."""
        words = [tr("“{name}” was imported with its history and cache.", name=imported.name)]
        words.append(tr("Its permissions, MCP servers and folders are not active."))
        words += map(said, imported.left_out[:5])
        act = partial(self.choose_folder, imported.id)
        self._window.notices.tell("\n".join(words), button=tr("Choose a folder…"), act=act, stays=STAYS)

    # --- the trash

    def show_trash(self) -> None:
        window = self._window
        TrashDialog(window, window.doing, window.desk, window.refresh_workspaces, window.memory.drop).open()

    def current(self, act: Callable[[WorkspaceRow], object]) -> None:
        """Do something with the workspace in front."""
        bench = self._window.bench
        row = next((row for row in self._window.workspaces() if bench is not None and row.id == bench.id), None)
        if row is not None:
            act(row)

    def _renamed(self) -> None:
        self._window.refresh_workspaces(self._show_name)

    def _show_name(self) -> None:
        window = self._window
        row = next((r for r in window.workspaces() if window.bench is not None and r.id == window.bench.id), None)
        if row is not None:
            window.sidebar.show_workspace(row.name, row.folder)
