"""The Changes page: what each turn did to files, with actions to keep, undo, comment on
and commit it.
"""

import asyncio
import re
import stat
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QSplitter, QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, find_hunks, is_binary
from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import (
    FileChange,
    TurnOfChanges,
    format_line_comment,
    without_user_undos,
)
from helix_desktop.engine.facts import ChangeKept, FilesChanged
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.changed_file_view import ChangedFileView
from helix_desktop.gui.changes.changed_files_list import (
    ChangedFilesList,
    ChangesListRow,
    group_rows_by_folder,
)
from helix_desktop.gui.changes.commit_button import CommitButton
from helix_desktop.gui.changes.coverage_dialog import CheckpointCoverageDialog
from helix_desktop.gui.changes.undo_and_redo import ChangesUndo
from helix_desktop.gui.common.difference_rows import (
    DifferenceSheet,
    build_difference_sheet,
    build_hunk_rows,
)
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.widgets import (
    build_popup_menu,
    build_push_button,
    build_scroll_area,
    set_surface_look,
)
from helix_desktop.gui.deep_links import open_in_desktop_program
from helix_desktop.gui.question_dialogs import ask_text
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import CheckpointProgress, FileChanges

# The file list's usual and least widths and least height, and the note's least width, in pixels.
# On a page narrower than `NARROW`, the shown file is below the list.
WIDTH, LEAST, LOW, NOTE, NARROW = 268, 168, 96, 90, 440
MOST_MOMENTS, MOST_WORDS = (
    20,
    90,
)  # The most checkpoints in the menu, and the most characters of each title.
ARROW = " ▾"
LoadedFileChange = tuple[
    FileChange, tuple[bytes, bytes], Sequence[Hunk], DifferenceSheet, frozenset[str]
]
# The desktop only displays these files. It might run other files, so we open their folder instead.
_SHOWN_SUFFIXES = r"txt|md|rst|log|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|[ch]|cc|[ch]pp|rs|go|java|kt|swift|tsx?|s?css|sql|diff|patch|png|jpe?g|gif|webp|bmp|pdf"
_SOURCE_SUFFIXES = (
    "" if sys.platform == "win32" else "|py|jsx?|rb|pl|lua|php"
)  # Windows would run these files.
SHOWN_FILE = re.compile(rf".*\.({_SHOWN_SUFFIXES}{_SOURCE_SUFFIXES})", re.IGNORECASE | re.DOTALL)


class ChangesPage(QWidget):
    """Shows what each turn did to files. `intent_wanted` is for the window, as on every
    page; `agent_message_written` carries a message for the agent, `notice_wanted` one
    for the user and its button.
    """

    intent_wanted = Signal(object)
    agent_message_written = Signal(str)
    notice_wanted = Signal(str, dict)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._changes: FileChanges | None = None
        self._conversation = self._agent = ""
        self._turns: Sequence[TurnOfChanges] = ()
        self._undone: list[TurnOfChanges] = []
        self._files: list[FileChange] = []
        self._scope, self._revision, self._checkpoint_turn_seq = "turns", "", 0
        self._is_up_to_date = self._has_sizes = False
        self._turn_to_show = (0, "")  # The fact and the file to show once the turns are listed.
        self._shown: FileChange | None = None
        self.files = ChangedFilesList(theme, self)
        self.body = ChangedFileView(theme, self)
        self.scope = build_push_button(tr("Each turn") + ARROW, self, look="pill")
        self.columns = build_push_button(tr("Unified") + ARROW, self, look="pill")
        self.cover_button = build_push_button(
            tr("Choose what checkpoints include…"), self, look="pill"
        )
        self.cover_button.hide()
        self._stop_watching_changes: Callable[[], None] = lambda: None
        self._note = ElidedLabel(self, least=theme.zoomed_pixels(NOTE))
        set_widget_look(self._note, "muted")
        self.undo_button = build_push_button(tr("Undo") + ARROW, self, look="pill")
        self.commit_button = CommitButton(doing, self)
        self.undo = ChangesUndo(theme, doing, self.undo_button)
        self._lay_out_changes_page(theme)
        self.files.row_opened.connect(self._load_and_show_changed_file)
        self.scope.clicked.connect(self._show_scope_menu)
        self.columns.clicked.connect(self._toggle_side_by_side)
        self.undo_button.clicked.connect(self._ask_what_to_undo)
        self.cover_button.clicked.connect(self._ask_which_folders_to_cover)
        self.commit_button.notice_wanted.connect(lambda words: self.notice_wanted.emit(words, {}))
        self.commit_button.committed.connect(self.reload_changes)
        self.undo.undone.connect(self._report_undo_and_reload)
        self.body.undo_button.clicked.connect(
            lambda: self.undo.plan_and_confirm_undo(self._shown.both_halves if self._shown else [])
        )
        self.body.keep.clicked.connect(lambda: self._mark_hunk_kept(""))
        self.body.open_in_editor.clicked.connect(self._open_file_or_folder)
        undo_hunk = self.undo.undo_hunk
        self.body.view.hunk_undo_requested.connect(
            lambda hunk: undo_hunk(self._shown, hunk) if self._shown else None
        )
        self.body.view.hunk_keep_requested.connect(self._mark_hunk_kept)
        self.body.view.commented.connect(self._send_line_comment_to_agent)

    def _lay_out_changes_page(self, theme: Theme) -> None:
        bar = QWidget(self)
        for each in (bar, self.body):
            set_surface_look(each, "page")
        shown = self.scope, self.columns, (self._note, 1), self.cover_button
        acts = self.undo_button, self.commit_button
        row = build_row(*shown, *acts, owner=bar, spacing=8, wraps=True)
        theme.keep_lengths_scaled(self, row.setContentsMargins, 20, 10, 20, 10)
        for button in (
            self.scope,
            self.columns,
            self.cover_button,
            self.undo_button,
            self.commit_button,
        ):
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._note.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        rule = QFrame(self)
        set_widget_look(rule, "rule")
        rule.setFixedHeight(1)
        self._split = QSplitter(Qt.Orientation.Horizontal, self, handleWidth=1)
        self._split.addWidget(self.files)
        self._split.addWidget(self.body)
        self._split.setStretchFactor(1, 1)
        self._split.setChildrenCollapsible(False)
        theme.keep_lengths_scaled(self, self.files.setMinimumSize, LEAST, LOW)
        build_column(
            bar, rule, (build_scroll_area(self._split, self), 1), owner=self, margins=0, spacing=0
        )

    def show_changes_of(
        self, changes: FileChanges | None, conversation: str, agent: str = ""
    ) -> None:
        """Shows the changes of a conversation, or of one without messages if the id is
        empty. `agent`: whose it is.
        """
        if changes is not self._changes:
            self._stop_watching_changes()
            self._stop_watching_changes = lambda: None
            if changes is not None:
                self._stop_watching_changes = changes.watch_checkpoints(
                    self._show_checkpoint_progress_and_reload
                )
                self._show_coverage_note(changes.checkpoint_progress)
        self._changes, self._conversation, self._agent = changes, conversation, agent
        self.undo.set_changes(changes, conversation)
        self._turns, self._shown, self._is_up_to_date = (), None, False
        self.files.show_changes_rows(())
        self.body.show_sentence_only("")
        if self.isVisible():
            self.reload_changes()

    def reload_if_files_changed(self, events: Sequence[Event]) -> None:
        facts = (event.recorded.fact for event in events if isinstance(event, FactAppended))
        if any(isinstance(fact, FilesChanged | ChangeKept) for fact in facts):
            self._is_up_to_date = False
            if self.isVisible():
                self.reload_changes()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._has_sizes:  # The page's width was not known before it was shown.
            files = min(self._theme.zoomed_pixels(WIDTH), self.width() // 3)
            self._split.setSizes([files, self.width() - files])
            self._has_sizes = True
        if not self._is_up_to_date:
            self.reload_changes()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < self._theme.zoomed_pixels(NARROW)
        self._split.setOrientation(Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal)

    def show_turn_of_fact(self, seq: int, path: str = "") -> None:
        """Shows the turn that contains a fact, and one file that it changed."""
        if not self._turns:
            self._turn_to_show = seq, path
            return
        turn = next((turn for turn in self._turns if turn.seq <= seq <= turn.end), None)
        rows = [
            row
            for row, entry in enumerate(self.files.files.items)
            if entry.turn is turn and entry.file
        ]
        if turn is not None and rows:
            entries = self.files.files.items
            named = (
                row
                for row in rows
                if (file := entries[row].file) and f"/{path}".endswith(f"/{file.place}")
            )
            self.files.setCurrentIndex(self.files.files.index(next(named, rows[0])))

    def reload_changes(self) -> None:
        self._is_up_to_date = True
        changes, conversation = self._changes, self._conversation
        if changes is None:
            self.body.show_sentence_only(tr("No workspace is open."))
            return
        self._run_for_page(
            self._gather_changes_rows(changes, conversation), then=self._show_gathered_changes
        )
        self._run_for_page(
            changes.git_repository.has_repository(), then=self.commit_button.relabel_for_git
        )

    async def _gather_changes_rows(
        self, changes: FileChanges, conversation: str
    ) -> tuple[FileChanges, str, Sequence[TurnOfChanges], list[ChangesListRow]]:
        turns = await changes.turns_with_changes(conversation) if conversation else ()
        groups: list[
            tuple[str, Sequence[FileChange], TurnOfChanges | None]
        ] = []  # The newest first.
        match self._scope:
            case "revision":
                files = await changes.changes_since_revision(self._revision)
                groups.append((tr("Since {revision}", revision=self._revision), files, None))
            case "checkpoint" if (began := self._turn_of_chosen_checkpoint(turns)) is not None:
                files = await changes.changes_since_checkpoint(began.first_checkpoint)
                groups.append((_since_turn_heading(began), files, None))
            case "conversation":
                files = await changes.file_changes_of_steps(
                    [source for turn in turns for source in turn.sources]
                )
                groups.append((tr("The whole conversation"), files, None))
            case _:
                for turn in reversed(turns):
                    files = await changes.file_changes_of_steps(turn.sources)
                    groups.append((tr("Turn {number}", number=turn.turn_numbers), files, turn))
        listed = [file.change for _, files, _ in groups for file in files]
        committed = await changes.git_repository.find_committed_paths(listed)
        entries = [row for group in groups for row in _build_group_rows(*group, committed)]
        if left := changes.list_uncovered_paths():
            entries.append(ChangesListRow(heading=tr("Not covered")))
            entries += [ChangesListRow(uncovered=one) for one in left]
        return changes, conversation, turns, entries

    def _turn_of_chosen_checkpoint(self, turns: Sequence[TurnOfChanges]) -> TurnOfChanges | None:
        chosen = (turn for turn in turns if turn.seq == self._checkpoint_turn_seq)
        return next(chosen, None) if self._scope == "checkpoint" else None

    def _show_gathered_changes(
        self, gathered: tuple[FileChanges, str, Sequence[TurnOfChanges], list[ChangesListRow]]
    ) -> None:
        changes, conversation, turns, entries = gathered
        if changes is not self._changes or conversation != self._conversation:
            return
        self._turns, shown = turns, [entry.turn for entry in entries]
        self.undo.turns = turns
        gone = (
            turn
            for turn in turns
            if turn not in shown and len(without_user_undos(turn.sources)) < len(turn.sources)
        )
        self._undone = list(gone) if self._scope == "turns" else []
        self._files = [entry.file for entry in entries if entry.file is not None]
        wanted, self._shown = (self._shown.path_of_change if self._shown else ""), None
        self.files.show_changes_rows(entries, wanted)
        if not self._files:
            redo = tr(
                "The agent's changes here have been undone. You can redo them from the Undo menu."
            )
            usual = tr("The agent has not changed any files here.")
            if self._agent:
                usual = tr("Helix Desktop does not follow the files that {agent} changes. Its edits are in the chat.", agent=self._agent)  # fmt: skip
            self.body.show_sentence_only(redo if self._undone else usual)
        self._show_coverage_note(changes.checkpoint_progress)
        if self._turn_to_show[0] and self._turns:
            (seq, path), self._turn_to_show = self._turn_to_show, (0, "")
            self.show_turn_of_fact(seq, path)
        self.undo_button.setEnabled(bool(self._turns))
        rest = (
            entry.file for entry in entries if entry.file is not None and not entry.is_committed
        )
        unique = {
            file.path_of_change: file for file in rest if not is_change_of_folder(file.change)
        }
        self.commit_button.set_files_to_commit(changes, conversation, list(unique.values()))

    def _show_checkpoint_progress_and_reload(self, progress: CheckpointProgress) -> None:
        self._show_coverage_note(progress)
        if (
            progress.state == "ready" and self.isVisible()
        ):  # Only now are the uncovered files known.
            self.reload_changes()

    def _show_coverage_note(self, progress: CheckpointProgress) -> None:
        by_agent = tr("This list shows changes by the agent and its commands, not your own edits.")
        by_all = tr("This list includes your own changes, too.")
        usual = by_agent if self._scope in ("turns", "conversation") else by_all
        over = self._changes is not None and any(
            left.is_beyond_limits for left in self._changes.list_uncovered_paths()
        )
        if over:
            usual = join_sentences(usual, tr("The files below are too large for checkpoints."))
        self.cover_button.setVisible(over)
        values = {"done": progress.files, "all": progress.of_files, "why": progress.why}
        self._note.set_elided_text(
            translate_name("checkpoints", progress.state, otherwise=usual, **values)
        )

    def _ask_which_folders_to_cover(self) -> None:
        """Shows the largest folders of a folder that exceeds the limit, for the user to choose."""
        if (changes := self._changes) is None:
            return

        def cover_chosen_folders(leave_out: Sequence[str], all_of_it: bool) -> None:  # noqa: FBT001 -- as the dialog says it
            rules = [*changes.coverage_in_settings.leave_out, *leave_out] if leave_out else None
            self._run_for_page(changes.change_coverage(all_of_it=all_of_it, leave_out=rules))

        dialog = CheckpointCoverageDialog(self)
        dialog.coverage_chosen.connect(cover_chosen_folders)
        dialog.open()
        self._doing.run_in_background(
            changes.largest_subfolders(), then=dialog.show_folder_sizes, owner=dialog
        )

    def _load_and_show_changed_file(self, entry: ChangesListRow) -> None:
        file, changes = entry.file, self._changes
        if file is None or changes is None:
            return
        self._shown = file

        def show_file_error(error: HelixError) -> None:
            if (
                file is self._shown
            ):  # The file's content could not be read. The previous file must not stay visible.
                self.body.show_sentence_only(translate_sentences(str(error)))

        work = self._load_changed_file(changes, file)
        self._doing.run_in_background(
            work, then=self._show_if_still_chosen, owner=self, failed=show_file_error
        )

    async def _load_changed_file(self, changes: FileChanges, file: FileChange) -> LoadedFileChange:
        contents = await changes.contents_of_both_versions(file)
        contents = (contents[1], contents[1]) if file.moved_from is not None else contents
        found, made = await asyncio.to_thread(
            _build_hunks_and_sheet, *contents, two_columns=self.body.view.has_two_columns
        )
        kept = await changes.kept_hunks_by_path(self._conversation) if self._conversation else {}
        return file, contents, found, made, kept.get(file.path_of_change, frozenset())

    def _show_if_still_chosen(self, looked: LoadedFileChange) -> None:
        if looked[0] is self._shown:
            self.body.show_changed_file(*looked)

    def _show_scope_menu(self) -> None:
        menu = build_popup_menu(self)
        menu.addAction(tr("Each turn")).triggered.connect(lambda: self.show_scope("turns"))
        menu.addAction(tr("The whole conversation")).triggered.connect(
            lambda: self.show_scope("conversation")
        )
        since = menu.addMenu(tr("Since a checkpoint"))
        since.setEnabled(bool(self._turns))
        for turn in self._turns[: -MOST_MOMENTS - 1 : -1]:
            action = since.addAction(
                f"{_since_turn_heading(turn)} · {turn.title}"[:MOST_WORDS].replace("&", "&&")
            )
            action.triggered.connect(lambda _=False, turn=turn: self.show_since_checkpoint(turn))
        menu.addAction(tr("Since a git revision…")).triggered.connect(
            self._ask_revision_and_show_changes_since
        )
        menu.popup(self.scope.mapToGlobal(self.scope.rect().bottomLeft()))

    def show_scope(self, scope: str, revision: str = "") -> None:
        """Shows the changes of a scope: "turns", "conversation" or "revision"."""
        self._scope, self._revision = scope, revision
        words = {"turns": tr("Each turn"), "conversation": tr("The whole conversation")}
        self.scope.setText(words.get(scope, tr("Since {revision}", revision=revision)) + ARROW)
        self.reload_changes()

    def show_since_checkpoint(self, turn: TurnOfChanges) -> None:
        """Shows all differences since a turn's checkpoint, including the user's own changes."""
        self._scope, self._checkpoint_turn_seq = "checkpoint", turn.seq
        self.scope.setText(_since_turn_heading(turn) + ARROW)
        self.reload_changes()

    def _ask_revision_and_show_changes_since(self) -> None:
        ask_text(
            self,
            tr("Changes since"),
            tr("Revision"),
            "HEAD",
            lambda text: self.show_scope("revision", text.strip()),
        )

    def _toggle_side_by_side(self) -> None:
        two = self.columns.text() == tr("Unified") + ARROW
        self.columns.setText((tr("Side by side") if two else tr("Unified")) + ARROW)
        self.body.view.show_columns(two=two)

    def _mark_hunk_kept(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None and self._conversation:
            work = self._changes.keep_hunk(self._conversation, self._shown.path_of_change, hunk)
            self._run_for_page(work)

    def _ask_what_to_undo(self) -> None:
        """Offers what can be undone of the shown file's turn, or of the last turn."""
        turn = self._turn_of_selected_row()
        if turn is not None and (began := self._turn_of_chosen_checkpoint(self._turns)) is not None:
            self.undo.confirm_and_undo_since_turn(began, self._turns)
        elif turn is not None:
            self.undo.ask_what_to_undo(turn, self._turns, self._undone)

    def _report_undo_and_reload(self, words: str, button: Mapping[str, object]) -> None:
        self.notice_wanted.emit(words, button)
        self.reload_changes()

    def _turn_of_selected_row(self) -> TurnOfChanges | None:
        entry = self.files.current_changes_row
        if entry is not None and entry.turn is not None:
            return entry.turn
        return self._turns[-1] if self._turns else None

    def _send_line_comment_to_agent(self, line: int, text: str, words: str) -> None:
        if self._shown is not None:
            self.agent_message_written.emit(
                format_line_comment(self._shown.place, line, text, words)
            )

    def _open_file_or_folder(self) -> None:
        """Opens the file, or its folder if opening the file might run it."""
        if self._changes is None or self._shown is None:
            return
        path, mode = self._changes.path_on_disk(self._shown), 0
        with suppress(OSError):
            mode = path.lstat().st_mode
        harmless = SHOWN_FILE.fullmatch(path.name) and stat.S_ISREG(mode) and not mode & 0o111
        open_in_desktop_program(path if harmless else path.parent)

    def _run_for_page(self, work: Coroutine[Any, Any, Any], *, then: Any = None) -> None:
        self._doing.run_in_background(work, then=then, owner=self)


def _build_hunks_and_sheet(
    before: bytes, after: bytes, *, two_columns: bool
) -> tuple[Sequence[Hunk], DifferenceSheet]:
    found = find_hunks(before, after) if not is_binary(before, after) else ()
    return found, build_difference_sheet(
        build_hunk_rows(found, two_columns=two_columns), two_columns=two_columns
    )


def _build_group_rows(
    words: str, files: Sequence[FileChange], turn: TurnOfChanges | None, committed: frozenset[str]
) -> list[ChangesListRow]:
    files = [
        file for file in files if not file.renamed or file.moved_from is not None
    ]  # A renamed file is one row.
    if not files:
        return []
    count = format_count(len(files), "{n} file", "{n} files")
    if is_change_of_folder(files[0].change):  # Folders are listed only if no file changed.
        count = format_count(len(files), "{n} folder", "{n} folders")
    heading = f"{words} · {count}"
    is_committed = committed.issuperset(file.path_of_change for file in files)
    heading += f" · {tr('committed')}" if is_committed else ""
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    heading_row = ChangesListRow(
        heading=heading, turn=turn, added=added, removed=removed, is_committed=is_committed
    )
    return [heading_row, *group_rows_by_folder(files, turn, committed)]


def _since_turn_heading(turn: TurnOfChanges) -> str:
    return tr("Since turn {number} began", number=turn.number)
