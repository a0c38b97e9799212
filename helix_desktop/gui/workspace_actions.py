"""Actions on whole workspaces: rename, colour, folders, export, import, trash."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from helix_desktop.gui.colours import WORKSPACE_COLOURS
from helix_desktop.gui.frame.progress_dialog import ProgressDialog
from helix_desktop.gui.frame.workspace_trash_dialog import WorkspaceTrashDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.question_dialogs import ask_file, ask_folder, ask_new_file, ask_text
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.text_file_saving import file_name_from_title
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import KnownWorkspace

EXPORT_SUFFIX = ".helix"
NOTICE_MILLISECONDS = 60_000


class WorkspaceActions:
    def __init__(self, window: MainWindow) -> None:
        self._window = window

    def run_workspace_action(self, action: str, workspace: str) -> None:
        row = next((row for row in self._window.listed_workspaces if row.id == workspace), None)
        if row is None:
            return
        settings = partial(self._window.settings_wanted.emit, "workspace")
        acts: dict[str, Callable[[KnownWorkspace], object]] = {
            "rename": self.ask_and_save_workspace_name,
            "recolour": self.recolour_with_next_colour,
            "settings": lambda one: self._window.go_to_workspace(one.id, settings),
            "folders": self.go_to_workspace_and_ask_folder,
            "export": self.ask_where_to_and_export_workspace,
            "trash": self.trash_workspace_with_undo,
        }
        acts[action](row)

    def ask_and_save_workspace_name(self, row: KnownWorkspace) -> None:
        window, show = self._window, self._window.sidebar.show_workspace_title

        def save_workspace_name(name: str) -> None:
            refreshed = partial(
                self.act_on_current_workspace, lambda one: show(one.name, one.first_folder)
            )
            work = window.workbenches.rename_workspace(row.id, name)
            window.run_for_window(work, then=lambda _d: window.refresh_workspaces(refreshed))

        ask_text(window, tr("Rename workspace"), tr("Name"), row.name, save_workspace_name)

    def recolour_with_next_colour(self, row: KnownWorkspace) -> None:
        """Sets the next colour of the table, all of which are readable."""
        at = (
            WORKSPACE_COLOURS.index(row.settings.colour)
            if row.settings.colour in WORKSPACE_COLOURS
            else -1
        )
        colour = WORKSPACE_COLOURS[(at + 1) % len(WORKSPACE_COLOURS)]
        work = self._window.workbenches.recolour_workspace(row.id, colour)
        self._window.run_for_window(work, then=lambda _d: self._window.refresh_workspaces())

    def trash_workspace_with_undo(self, row: KnownWorkspace) -> None:
        window = self._window

        def restore_from_trash() -> None:
            work = window.workbenches.restore_workspace(row.id)
            window.run_for_window(work, then=lambda _d: window.refresh_workspaces())

        def notice_workspace_trashed(_done: None) -> None:
            window.leave_trashed_workspace(row.id)
            words = tr(
                "“{name}” was moved to the trash. The workspace's folder was not changed.",
                name=row.name,
            )
            window.notices.show_notice(words, act=restore_from_trash)

        window.run_for_window(
            window.workbenches.trash_workspace(workspace=row.id), then=notice_workspace_trashed
        )

    def go_to_workspace_and_ask_folder(self, row: KnownWorkspace) -> None:
        """Asks for another folder, which replaces those of the workspace."""
        self._window.go_to_workspace(row.id, lambda: self.ask_and_set_workspace_folder(row.id))

    def ask_and_set_workspace_folder(self, workspace: str) -> None:
        window, say, words = (
            self._window,
            self._window.notices.show_notice,
            tr("“{name}” now uses {folder}."),
        )

        def set_workspace_folder(path: Path) -> None:
            work = window.workbenches.set_workspace_folders(workspace, [path])
            notice = lambda bench: say(words.format(name=bench.name, folder=bench.main_folder))  # noqa: E731
            window.change_and_reopen_workspace(workspace, work, notice)

        ask_folder(window, tr("Workspace folder"), set_workspace_folder)

    def ask_where_to_and_export_workspace(self, row: KnownWorkspace) -> None:
        """Exports history and cache as one file, never with keys."""
        place = str(Path.home() / (file_name_from_title(row.name, "workspace") + EXPORT_SUFFIX))
        ask_new_file(
            self._window, tr("Export workspace"), place, partial(self._export_workspace_to, row)
        )

    def _export_workspace_to(self, row: KnownWorkspace, path: Path) -> None:
        window = self._window
        lasting = ProgressDialog(tr("Exporting “{name}”", name=row.name), window)
        lasting.rejected.connect(
            lambda: window.notices.show_notice(tr("Export stopped. Nothing was written."))
        )
        words = tr("“{name}” was exported to {file}, with its history and cache but without any keys.", name=row.name, file=path.name)  # fmt: skip

        def notice_workspace_exported(damaged: Sequence[str]) -> None:
            if damaged:
                names = ", ".join(name[:12] for name in damaged[:3]) + (
                    ", …" if len(damaged) > 3 else ""
                )
                left_out = format_count(
                    len(damaged),
                    "{n} entry is damaged and was left out:",
                    "{n} entries are damaged and were left out:",
                )
                window.notices.show_notice(
                    f"{words}\n{left_out} {names}", shown_ms=NOTICE_MILLISECONDS
                )
            else:
                window.notices.show_notice(words)

        work = window.workbenches.export_workspace(row.id, path, lasting.show_byte_progress)
        lasting.run_with_progress(window.background_runner, work, notice_workspace_exported)

    def ask_which_file_and_import_workspace(self) -> None:
        patterns = tr("Exported workspaces ({pattern})", pattern=f"*{EXPORT_SUFFIX}")
        ask_file(self._window, tr("Import workspace"), patterns, self.import_workspace_from)

    def import_workspace_from(self, path: Path) -> None:
        window = self._window
        lasting = ProgressDialog(tr("Importing {file}", file=path.name), window)
        lasting.rejected.connect(
            lambda: window.notices.show_notice(tr("Import stopped. Nothing was added."))
        )
        work = window.workbenches.import_workspace(path, report=lasting.show_byte_progress)
        lasting.run_with_progress(window.background_runner, work, self._open_imported_workspace)

    def _open_imported_workspace(self, imported: KnownWorkspace) -> None:
        window = self._window
        window.refresh_workspaces()
        window.go_to_workspace(imported.id, lambda: self._notice_workspace_imported(imported))

    def _notice_workspace_imported(self, imported: KnownWorkspace) -> None:
        """Says what was imported, what could not be, and that none of its settings are in force."""
        words = [tr("“{name}” was imported with its history and cache.", name=imported.name)]
        words.append(
            tr("The imported workspace's permissions, MCP servers and folders are not active yet.")
        )
        words += map(translate_sentences, imported.left_out[:5])
        act = partial(self.ask_and_set_workspace_folder, imported.id)
        self._window.notices.show_notice(
            "\n".join(words), button=tr("Choose a folder…"), act=act, shown_ms=NOTICE_MILLISECONDS
        )

    # --- The trash of conversations and workspaces

    def open_trash_dialog(self) -> None:
        window = self._window
        WorkspaceTrashDialog(
            window,
            window.background_runner,
            window.workbenches,
            window.refresh_workspaces,
            window.state_file.forget_deleted_ids,
        ).open()

    def act_on_current_workspace(self, act: Callable[[KnownWorkspace], object]) -> None:
        shown = self._window.showing.workspace_id
        for row in [row for row in self._window.listed_workspaces if row.id == shown]:
            act(row)
