"""What can be done with a workspace of the rail: rename, another colour, export, trash. A slip can be undone."""

from __future__ import annotations

from helix_desktop.gui.asking import ask_text
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import WorkspaceRow
from helix_desktop.gui.tokens import WORKSPACE_COLOURS
from helix_desktop.gui.words import tr


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
            "trash": self.trash,
        }
        acts[what](row)

    def rename(self, row: WorkspaceRow) -> None:
        window = self._window

        def named(name: str) -> None:
            window.doing.do(
                window.desk.rename(row.id, name), name="rename a workspace", then=lambda _d: self._renamed()
            )

        ask_text(window, tr("Rename the workspace"), tr("Name"), row.name, named)

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
            words = tr("“{name}” is in the trash. The folder itself was not touched.", name=row.name)
            window.notices.tell(words, act=undo)

        window.doing.do(window.desk.trash(workspace=row.id), name="trash a workspace", then=told)

    def _renamed(self) -> None:
        self._window.refresh_workspaces(self._show_name)

    def _show_name(self) -> None:
        window = self._window
        row = next((r for r in window.workspaces() if window.bench is not None and r.id == window.bench.id), None)
        if row is not None:
            window.sidebar.show_workspace(row.name, row.folder)
