"""Actions on whole workspaces: open, rename, colour, folders, share, export, import, trash."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtGui import QKeySequence, QShortcut

from helix_desktop.gui.colours import WORKSPACE_COLOURS
from helix_desktop.gui.frame.progress_dialog import ProgressDialog
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.workspace_trash_dialog import WorkspaceTrashDialog
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.question_dialogs import ask_file, ask_folder, ask_new_file, ask_text
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import (
    RememberedWorkspace,
    ShownWorkspace,
)
from helix_desktop.gui.text_file_saving import file_name_from_title
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.user_terminal import open_user_terminal
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import KnownWorkspace, Workbench

EXPORT_SUFFIX = ".helix"
NOTICE_MILLISECONDS = 60_000
SHOWN_DAMAGED_ENTRIES = 3
SHOWN_HASH_DIGITS = 12
SHOWN_NOTES_ON_IMPORT = 5


class WorkspaceActions(QObject):
    """Serves the rail of workspaces, its menu and the actions on the shown workspace."""

    def __init__(self, parts: WindowParts, frame: WindowFrame, workspaces: OpenWorkspaces) -> None:
        super().__init__(frame)
        self._parts = parts
        self._frame = frame
        self._workspaces = workspaces
        self._connect_rail()
        self._declare_workspace_actions()

    def _connect_rail(self) -> None:
        rail = self._frame.rail
        rail.chosen.connect(self._go_to_chosen_workspace)
        rail.ordered.connect(self._workspaces.save_workspace_order)
        rail.workspace_action_wanted.connect(self.run_workspace_action)
        for number in range(1, 10):
            shortcut = QShortcut(QKeySequence(f"Ctrl+{number}"), self._frame)
            shortcut.activated.connect(partial(self._open_workspace_by_number, number))

    def _declare_workspace_actions(self) -> None:
        showing = self._parts.showing
        unless_blocked = self._workspaces.run_unless_blocked
        act_on_shown = self._act_on_shown_workspace
        set_handler = self._parts.actions.set_action_handler
        set_handler("open-folder", partial(unless_blocked, self._ask_folder_to_open))
        set_handler("open-folder-elsewhere", partial(unless_blocked, self._open_elsewhere_dialog))
        set_handler("join-workspace", partial(unless_blocked, self._open_join_dialog))
        set_handler(
            "import-workspace", partial(unless_blocked, self.ask_which_file_and_import_workspace)
        )
        set_handler("workspace-trash", self.open_trash_dialog)
        set_handler("share-workspace", self._open_share_dialog, when=showing.has_workbench)
        set_handler(
            "workspace-folder",
            partial(act_on_shown, self.go_to_workspace_and_ask_folder),
            when=showing.has_workbench,
        )
        set_handler("terminal", self._open_terminal_in_shown, when=showing.has_workbench)
        set_handler(
            "export-workspace",
            partial(act_on_shown, self.ask_where_to_and_export_workspace),
            when=showing.has_workbench,
        )
        set_handler(
            "trash-workspace",
            partial(act_on_shown, self.trash_workspace_with_undo),
            when=showing.has_workbench,
        )

    def _go_to_chosen_workspace(self, workspace: str) -> None:
        self._workspaces.go_to_workspace(workspace)

    def _act_on_shown_workspace(self, act: Callable[[KnownWorkspace], object]) -> None:
        row = self._workspaces.row_of(self._parts.showing.workspace_id)
        if row is not None:
            act(row)

    def _open_terminal_in_shown(self) -> None:
        self.run_workspace_action("terminal", self._parts.showing.workspace_id)

    def run_workspace_action(self, action: str, workspace: str) -> None:
        """Does what was chosen in the menu of a workspace, which may be another than the shown."""
        row = self._workspaces.row_of(workspace)
        if row is None:
            return
        remembered = self._workspaces.find_remembered(workspace)
        if remembered is not None:
            self._run_action_on_remembered(action, remembered)
            return
        match action:
            case "rename":
                self.ask_and_save_workspace_name(row)
            case "recolour":
                self.recolour_with_next_colour(row)
            case "settings":
                open_settings = partial(self._parts.requests.settings_wanted.emit, "workspace")
                self._workspaces.go_to_workspace(row.id, open_settings)
            case "folders":
                self.go_to_workspace_and_ask_folder(row)
            case "terminal":
                self._parts.run_for_window(open_user_terminal(Path(row.first_folder)))
            case "export":
                self.ask_where_to_and_export_workspace(row)
            case "trash":
                self.trash_workspace_with_undo(row)

    def _run_action_on_remembered(self, action: str, remembered: RememberedWorkspace) -> None:
        """Does what can be done with a folder on another computer in the list of workspaces."""
        match action:
            case "rename":
                save_name = partial(self._rename_remembered, remembered)
                heading = tr("Rename workspace")
                ask_text(self._frame, heading, tr("Name"), remembered.name, save_name)
            case "recolour":
                index = 0
                if remembered.colour in WORKSPACE_COLOURS:
                    index = WORKSPACE_COLOURS.index(remembered.colour) + 1
                colour = WORKSPACE_COLOURS[index % len(WORKSPACE_COLOURS)]
                self._workspaces.save_remembered(replace(remembered, colour=colour))
                self._workspaces.refresh_workspaces()
            case "trash":
                self._workspaces.forget_remembered(remembered.id)
                restore = partial(self._remember_again, remembered)
                text = tr(
                    "“{name}” was taken out of the list. Nothing was changed on the other computer.",
                    name=remembered.name,
                )
                self._parts.notices.show_notice(text, act=restore)
            case _:
                self._parts.notices.show_done_elsewhere()

    def _rename_remembered(self, remembered: RememberedWorkspace, name: str) -> None:
        self._workspaces.save_remembered(replace(remembered, name=name.strip() or remembered.name))
        self._workspaces.refresh_workspaces()

    def _remember_again(self, remembered: RememberedWorkspace) -> None:
        self._workspaces.save_remembered(remembered)
        self._workspaces.refresh_workspaces()

    # --- Opening and sharing

    def _open_elsewhere_dialog(self) -> None:
        from helix_desktop.gui.open_folder_elsewhere_dialog import OpenFolderElsewhereDialog

        OpenFolderElsewhereDialog(
            self._workspaces,
            self._parts.runner,
            self._show_folder_elsewhere,
            self._frame,
        ).open()

    def _show_folder_elsewhere(self, workspace: ShownWorkspace) -> None:
        self._workspaces.refresh_workspaces()
        self._workspaces.bring_to_front(workspace)

    def _open_workspace_by_number(self, number: int) -> None:
        workspace = self._frame.rail.workspace_id_at(number)
        if workspace:
            self._workspaces.go_to_workspace(workspace)

    def _ask_folder_to_open(self) -> None:
        create = self._workspaces.create_workspace_for_folder
        ask_folder(self._frame, tr("Open folder as workspace"), create)

    def _open_share_dialog(self) -> None:
        bench = self._parts.showing.bench
        if bench is not None:
            from helix_desktop.gui.sharing.share_workspace_dialog import ShareWorkspaceDialog

            dialog = ShareWorkspaceDialog(
                bench,
                self._parts.runner,
                self._frame,
                shows_conversation=bool(self._parts.showing.conversation_id),
                on_forgotten=partial(
                    self._parts.state_file.forget_remembered_text, within=bench.id
                ),
            )
            dialog.export_wanted.connect(self._trigger_action)
            dialog.copy_wanted.connect(self._copy_shown_conversation)
            dialog.open()

    def _copy_shown_conversation(self) -> None:
        from helix_desktop.gui.conversation_exporting import ConversationExport

        showing = self._parts.showing
        if showing.bench is None:
            return
        for row in showing.bench.list_conversations():
            if row.id == showing.conversation_id:
                ConversationExport(self._parts, showing.bench, row).copy_as_markdown()

    def _trigger_action(self, action: str) -> None:
        self._parts.actions[action].trigger()

    def _open_join_dialog(self) -> None:
        from helix_desktop.gui.sharing.join_workspace_dialog import JoinWorkspaceDialog

        JoinWorkspaceDialog(
            self._workspaces.workbenches,
            self._workspaces.suggest_workspace_name,
            self._parts.runner,
            self._open_joined_workspace,
            self._frame,
        ).open()

    def _open_joined_workspace(self, bench: Workbench) -> None:
        self._workspaces.refresh_workspaces()
        self._workspaces.go_to_workspace(bench.id)

    # --- Names, colours and folders

    def ask_and_save_workspace_name(self, row: KnownWorkspace) -> None:
        save_name = partial(self._start_saving_name, row)
        ask_text(self._frame, tr("Rename workspace"), tr("Name"), row.name, save_name)

    def _start_saving_name(self, row: KnownWorkspace, name: str) -> None:
        renaming = self._workspaces.workbenches.rename_workspace(row.id, name)
        self._parts.run_for_window(renaming, then=self._show_new_name)

    def _show_new_name(self, _done: object) -> None:
        show_title = partial(self._act_on_shown_workspace, self._show_title_of_workspace)
        self._workspaces.refresh_workspaces(show_title)

    def _show_title_of_workspace(self, row: KnownWorkspace) -> None:
        self._frame.sidebar.show_workspace_title(row.name, row.first_folder)

    def recolour_with_next_colour(self, row: KnownWorkspace) -> None:
        """Sets the next colour of the table, all of which are readable."""
        index = 0
        if row.settings.colour in WORKSPACE_COLOURS:
            index = WORKSPACE_COLOURS.index(row.settings.colour) + 1
        # After the last colour comes the first one again.
        colour = WORKSPACE_COLOURS[index % len(WORKSPACE_COLOURS)]
        recolouring = self._workspaces.workbenches.recolour_workspace(row.id, colour)
        self._parts.run_for_window(recolouring, then=self._refresh_workspaces)

    def _refresh_workspaces(self, _done: object) -> None:
        self._workspaces.refresh_workspaces()

    def go_to_workspace_and_ask_folder(self, row: KnownWorkspace) -> None:
        """Asks for another folder, which replaces those of the workspace."""
        ask = partial(self.ask_and_set_workspace_folder, row.id)
        self._workspaces.go_to_workspace(row.id, ask)

    def ask_and_set_workspace_folder(self, workspace: str) -> None:
        set_folder = partial(self._set_workspace_folder, workspace)
        ask_folder(self._frame, tr("Workspace folder"), set_folder)

    def _set_workspace_folder(self, workspace: str, path: Path) -> None:
        change = self._workspaces.workbenches.set_workspace_folders(workspace, [path])
        self._workspaces.change_and_reopen_workspace(workspace, change, self._notice_new_folder)

    def _notice_new_folder(self, workspace: ShownWorkspace) -> None:
        folder = next(iter(workspace.allowed_folders), Path.home())
        text = tr("“{name}” now uses {folder}.").format(name=workspace.name, folder=folder)
        self._parts.notices.show_notice(text)

    # --- The trash

    def trash_workspace_with_undo(self, row: KnownWorkspace) -> None:
        trashing = self._workspaces.workbenches.trash_workspace(workspace=row.id)
        notice = partial(self._leave_and_notice_trashed, row)
        self._parts.run_for_window(trashing, then=notice)

    def _leave_and_notice_trashed(self, row: KnownWorkspace, _done: object) -> None:
        self._workspaces.leave_trashed_workspace(row.id)
        text = tr(
            "“{name}” was moved to the trash. The workspace's folder was not changed.",
            name=row.name,
        )
        self._parts.notices.show_notice(text, act=partial(self._restore_from_trash, row))

    def _restore_from_trash(self, row: KnownWorkspace) -> None:
        restoring = self._workspaces.workbenches.restore_workspace(row.id)
        self._parts.run_for_window(restoring, then=self._refresh_workspaces)

    def open_trash_dialog(self) -> None:
        WorkspaceTrashDialog(
            self._frame,
            self._parts.runner,
            self._workspaces.workbenches,
            self._workspaces.refresh_workspaces,
            self._parts.state_file.forget_deleted_ids,
        ).open()

    # --- Export and import

    def ask_where_to_and_export_workspace(self, row: KnownWorkspace) -> None:
        """Exports history and cache as one file, never with keys."""
        name = file_name_from_title(row.name, "workspace") + EXPORT_SUFFIX
        suggested = str(Path.home() / name)
        export = partial(self._export_workspace_to, row)
        ask_new_file(self._frame, tr("Export workspace"), suggested, export)

    def _export_workspace_to(self, row: KnownWorkspace, path: Path) -> None:
        progress = ProgressDialog(tr("Exporting “{name}”", name=row.name), self._frame)
        progress.rejected.connect(self._notice_export_stopped)
        work = self._workspaces.workbenches.export_workspace(
            row.id, path, progress.show_byte_progress
        )
        notice = partial(self._notice_workspace_exported, row, path)
        progress.run_with_progress(self._parts.runner, work, notice)

    def _notice_export_stopped(self) -> None:
        self._parts.notices.show_notice(tr("Export stopped. Nothing was written."))

    def _notice_workspace_exported(
        self, row: KnownWorkspace, path: Path, damaged: Sequence[str]
    ) -> None:
        text = tr("“{name}” was exported to {file}, with its history and cache but without model keys.", name=row.name, file=path.name)  # fmt: skip
        if not damaged:
            self._parts.notices.show_notice(text)
            return
        short_names = [name[:SHOWN_HASH_DIGITS] for name in damaged[:SHOWN_DAMAGED_ENTRIES]]
        names = ", ".join(short_names)
        if len(damaged) > SHOWN_DAMAGED_ENTRIES:
            names += ", …"
        left_out = format_count(
            len(damaged),
            "{n} stored output is damaged and was left out:",
            "{n} stored outputs are damaged and were left out:",
        )
        self._parts.notices.show_notice(f"{text}\n{left_out} {names}", shown_ms=NOTICE_MILLISECONDS)

    def ask_which_file_and_import_workspace(self) -> None:
        patterns = tr("Exported workspaces ({pattern})", pattern=f"*{EXPORT_SUFFIX}")
        ask_file(self._frame, tr("Import workspace"), patterns, self.import_workspace_from)

    def import_workspace_from(self, path: Path) -> None:
        progress = ProgressDialog(tr("Importing {file}", file=path.name), self._frame)
        progress.rejected.connect(self._notice_import_stopped)
        work = self._workspaces.workbenches.import_workspace(
            path, report=progress.show_byte_progress
        )
        progress.run_with_progress(self._parts.runner, work, self._open_imported_workspace)

    def _notice_import_stopped(self) -> None:
        self._parts.notices.show_notice(tr("Import stopped. Nothing was added."))

    def _open_imported_workspace(self, imported: KnownWorkspace) -> None:
        self._workspaces.refresh_workspaces()
        notice = partial(self._notice_workspace_imported, imported)
        self._workspaces.go_to_workspace(imported.id, notice)

    def _notice_workspace_imported(self, imported: KnownWorkspace) -> None:
        """Says what was imported, what could not be, and that none of its settings are in force."""
        sentences = [
            tr("“{name}” was imported with its history and cache.", name=imported.name),
            tr("The imported workspace's permissions, MCP servers and folders are not active yet."),
        ]
        for sentence in imported.left_out[:SHOWN_NOTES_ON_IMPORT]:
            sentences.append(translate_sentences(sentence))
        self._parts.notices.show_notice(
            "\n".join(sentences),
            button=tr("Choose a folder…"),
            act=partial(self.ask_and_set_workspace_folder, imported.id),
            shown_ms=NOTICE_MILLISECONDS,
        )
