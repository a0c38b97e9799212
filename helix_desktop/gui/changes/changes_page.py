"""The Changes page: what each turn did to files, with actions to keep, undo, comment on
and commit it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QSplitter, QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, find_hunks, is_binary
from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import (
    FileChange,
    TurnOfChanges,
    UncoveredPath,
    format_line_comment,
    without_user_undos,
)
from helix_desktop.engine.facts import ChangeKept, FilesChanged
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.after_commit_bar import AfterCommitBar
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
from helix_desktop.gui.deep_links import open_file_or_its_folder
from helix_desktop.gui.question_dialogs import ask_text
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import CheckpointProgress, FileChanges

# The file list's usual and least widths and least height, and the note's least width, in pixels.
# On a page narrower than `NARROW`, the shown file is below the list.
WIDTH = 268
LEAST = 168
LOW = 96
NOTE = 90
NARROW = 440
MOST_MOMENTS = 20  # The most checkpoints in the menu.
MOST_WORDS = 90  # The most characters of a checkpoint's title in the menu.
ARROW = " ▾"
LoadedFileChange = tuple[
    FileChange, tuple[bytes, bytes], Sequence[Hunk], DifferenceSheet, frozenset[str]
]


@dataclass(frozen=True, slots=True)
class ChangesGroup:
    """Files under one heading. `turn`: whose changes they are, if they are those of one turn."""

    heading: str
    files: Sequence[FileChange]
    turn: TurnOfChanges | None = None


@dataclass(frozen=True, slots=True)
class GatheredChanges:
    """What the page shows of a conversation, read in the background."""

    changes: FileChanges
    conversation: str
    turns: Sequence[TurnOfChanges]
    rows: list[ChangesListRow]


class ChangesPage(QWidget):
    """Shows what each turn did to files. `intent_wanted` is for the window, as on every
    page; `agent_message_written` carries a message for the agent, `notice_wanted` one
    for the user and its button, and `failure_given` the name of a failed check and its log.
    """

    intent_wanted = Signal(object)
    agent_message_written = Signal(str)
    notice_wanted = Signal(str, dict)
    failure_given = Signal(str, str)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._changes: FileChanges | None = None
        self._conversation = ""
        self._agent = ""
        self._turns: Sequence[TurnOfChanges] = ()
        self._undone: list[TurnOfChanges] = []
        self._files: list[FileChange] = []
        self._scope = "turns"
        self._revision = ""
        self._checkpoint_turn_seq = 0
        self._is_up_to_date = False
        self._has_sizes = False
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
        self.after_commit = AfterCommitBar(theme, doing, self)
        self.undo = ChangesUndo(theme, doing, self.undo_button)
        self._lay_out_changes_page(theme)
        self.files.row_opened.connect(self._load_and_show_changed_file)
        self.scope.clicked.connect(self._show_scope_menu)
        self.columns.clicked.connect(self._toggle_side_by_side)
        self.undo_button.clicked.connect(self._ask_what_to_undo)
        self.cover_button.clicked.connect(self._ask_which_folders_to_cover)
        self.commit_button.notice_wanted.connect(lambda words: self.notice_wanted.emit(words, {}))
        self.commit_button.committed.connect(self.reload_changes)
        self.after_commit.notice_wanted.connect(lambda words: self.notice_wanted.emit(words, {}))
        self.after_commit.failure_given.connect(self.failure_given)
        self.undo.undone.connect(self._report_undo_and_reload)
        self.body.undo_button.clicked.connect(self._undo_shown_file)
        self.body.keep.clicked.connect(lambda: self._mark_hunk_kept(""))
        self.body.open_in_editor.clicked.connect(self._open_file_or_folder)
        self.body.view.hunk_undo_requested.connect(self._undo_hunk_of_shown_file)
        self.body.view.hunk_keep_requested.connect(self._mark_hunk_kept)
        self.body.view.commented.connect(self._send_line_comment_to_agent)

    def _undo_shown_file(self) -> None:
        if self._shown is not None:
            self.undo.plan_and_confirm_undo(self._shown.both_halves)

    def _undo_hunk_of_shown_file(self, hunk: str) -> None:
        if self._shown is not None:
            self.undo.undo_hunk(self._shown, hunk)

    def _lay_out_changes_page(self, theme: Theme) -> None:
        bar = QWidget(self)
        set_surface_look(bar, "page")
        set_surface_look(self.body, "page")
        row = build_row(
            self.scope,
            self.columns,
            (self._note, 1),
            self.cover_button,
            self.undo_button,
            self.commit_button,
            owner=bar,
            spacing=8,
            wraps=True,
        )
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
        scrolled = build_scroll_area(self._split, self)
        build_column(bar, self.after_commit, rule, (scrolled, 1), owner=self, margins=0, spacing=0)

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
        self._changes = changes
        self._conversation = conversation
        self._agent = agent
        self.undo.set_changes(changes, conversation)
        self._turns = ()
        self._shown = None
        self._is_up_to_date = False
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
        if narrow:
            self._split.setOrientation(Qt.Orientation.Vertical)
        else:
            self._split.setOrientation(Qt.Orientation.Horizontal)

    def show_turn_of_fact(self, seq: int, path: str = "") -> None:
        """Shows the turn that contains a fact, and one file that it changed."""
        if not self._turns:
            self._turn_to_show = seq, path
            return
        turn = next((turn for turn in self._turns if turn.seq <= seq <= turn.end), None)
        if turn is None:
            return
        row_to_show: int | None = None
        for row, entry in enumerate(self.files.files.items):
            if entry.turn is not turn or entry.file is None:
                continue
            if row_to_show is None:
                row_to_show = row
            if f"/{path}".endswith(f"/{entry.file.place}"):
                row_to_show = row
                break
        if row_to_show is not None:
            self.files.setCurrentIndex(self.files.files.index(row_to_show))

    def reload_changes(self) -> None:
        self._is_up_to_date = True
        changes = self._changes
        if changes is None:
            self.body.show_sentence_only(tr("No workspace is open."))
            return
        gathering = self._gather_changes(changes, self._conversation)
        self._run_for_page(gathering, then=self._show_gathered_changes)
        has_repository = changes.git_repository.has_repository()
        self._run_for_page(has_repository, then=self.commit_button.relabel_for_git)
        self.after_commit.show_branch_of(changes, self._conversation)

    async def _gather_changes(self, changes: FileChanges, conversation: str) -> GatheredChanges:
        turns: Sequence[TurnOfChanges] = ()
        if conversation:
            turns = await changes.turns_with_changes(conversation)
        groups = await self._gather_groups(changes, turns)
        paths = [file.change for group in groups for file in group.files]
        committed = await changes.git_repository.find_committed_paths(paths)
        rows = [row for group in groups for row in _build_group_rows(group, committed)]
        uncovered = changes.list_uncovered_paths()
        if uncovered:
            rows.append(ChangesListRow(heading=tr("Not covered")))
            rows.extend(ChangesListRow(uncovered=path) for path in uncovered)
        return GatheredChanges(changes, conversation, turns, rows)

    async def _gather_groups(
        self, changes: FileChanges, turns: Sequence[TurnOfChanges]
    ) -> list[ChangesGroup]:
        """Returns the groups of the chosen scope, the newest first."""
        if self._scope == "revision":
            files = await changes.changes_since_revision(self._revision)
            return [ChangesGroup(tr("Since {revision}", revision=self._revision), files)]
        began = self._turn_of_chosen_checkpoint(turns)
        if began is not None:
            files = await changes.changes_since_checkpoint(began.first_checkpoint)
            return [ChangesGroup(_since_turn_heading(began), files)]
        if self._scope == "conversation":
            sources = [source for turn in turns for source in turn.sources]
            files = await changes.file_changes_of_steps(sources)
            return [ChangesGroup(tr("The whole conversation"), files)]
        groups = []
        for turn in reversed(turns):
            files = await changes.file_changes_of_steps(turn.sources)
            heading = tr("Turn {number}", number=turn.turn_numbers)
            groups.append(ChangesGroup(heading, files, turn))
        return groups

    def _turn_of_chosen_checkpoint(self, turns: Sequence[TurnOfChanges]) -> TurnOfChanges | None:
        if self._scope == "checkpoint":
            for turn in turns:
                if turn.seq == self._checkpoint_turn_seq:
                    return turn
        return None

    def _show_gathered_changes(self, gathered: GatheredChanges) -> None:
        changes = gathered.changes
        if changes is not self._changes or gathered.conversation != self._conversation:
            return  # Another conversation was chosen meanwhile.
        rows = gathered.rows
        self._turns = gathered.turns
        self.undo.turns = gathered.turns
        self._undone = self._find_undone_turns(rows)
        self._files = [row.file for row in rows if row.file is not None]
        shown_path = ""
        if self._shown is not None:
            shown_path = self._shown.path_of_change
        self._shown = None
        self.files.show_changes_rows(rows, shown_path)
        if not self._files:
            self.body.show_sentence_only(self._explain_empty_list())
        self._show_coverage_note(changes.checkpoint_progress)
        seq, path = self._turn_to_show
        if seq and self._turns:
            self._turn_to_show = (0, "")
            self.show_turn_of_fact(seq, path)
        self.undo_button.setEnabled(bool(self._turns))
        self._offer_files_to_commit(gathered)

    def _find_undone_turns(self, rows: Sequence[ChangesListRow]) -> list[TurnOfChanges]:
        """Returns turns that have no row because the user undid what they changed."""
        if self._scope != "turns":
            return []
        shown = [row.turn for row in rows]
        undone = []
        for turn in self._turns:
            was_undone = len(without_user_undos(turn.sources)) < len(turn.sources)
            if was_undone and turn not in shown:
                undone.append(turn)
        return undone

    def _explain_empty_list(self) -> str:
        if self._undone:
            return tr(
                "The agent's changes here have been undone. You can redo them from the Undo menu."
            )
        if self._agent:
            return tr(
                "Helix Desktop does not follow the files that {agent} changes. Its edits are in the chat.",
                agent=self._agent,
            )
        return tr("The agent has not changed any files here.")

    def _offer_files_to_commit(self, gathered: GatheredChanges) -> None:
        """Offers each changed file once, without those that are as in the last commit."""
        files: dict[str, FileChange] = {}
        for row in gathered.rows:
            if row.file is None or row.is_committed or is_change_of_folder(row.file.change):
                continue
            files[row.file.path_of_change] = row.file
        self.commit_button.set_files_to_commit(
            gathered.changes, gathered.conversation, list(files.values())
        )

    def _show_checkpoint_progress_and_reload(self, progress: CheckpointProgress) -> None:
        self._show_coverage_note(progress)
        # Only now are the uncovered files known.
        if progress.state == "ready" and self.isVisible():
            self.reload_changes()

    def _show_coverage_note(self, progress: CheckpointProgress) -> None:
        if self._scope in ("turns", "conversation"):
            usual = tr("This list shows changes by the agent and its commands, not your own edits.")
        else:
            usual = tr("This list includes your own changes, too.")
        uncovered: Sequence[UncoveredPath] = ()
        if self._changes is not None:
            uncovered = self._changes.list_uncovered_paths()
        is_too_large = any(left.is_beyond_limits for left in uncovered)
        if is_too_large:
            usual = join_sentences(usual, tr("The files below are too large for checkpoints."))
        self.cover_button.setVisible(is_too_large)
        values = {"done": progress.files, "all": progress.of_files, "why": progress.why}
        note = translate_name("checkpoints", progress.state, otherwise=usual, **values)
        self._note.set_elided_text(note)

    def _ask_which_folders_to_cover(self) -> None:
        """Shows the largest folders of a folder that exceeds the limit, for the user to choose."""
        changes = self._changes
        if changes is None:
            return

        def cover_all_but(leave_out: Sequence[str]) -> None:
            rules = None
            if leave_out:
                rules = list(changes.coverage_in_settings.leave_out)
                rules += leave_out
            self._run_for_page(changes.change_coverage(all_of_it=True, leave_out=rules))

        dialog = CheckpointCoverageDialog(self)
        dialog.coverage_chosen.connect(cover_all_but)
        dialog.open()
        self._doing.run_in_background(
            changes.largest_subfolders(), then=dialog.show_folder_sizes, owner=dialog
        )

    def _load_and_show_changed_file(self, entry: ChangesListRow) -> None:
        file = entry.file
        changes = self._changes
        if file is None or changes is None:
            return
        self._shown = file

        def show_file_error(error: HelixError) -> None:
            # The file's content could not be read. The previous file must not stay visible.
            if file is self._shown:
                self.body.show_sentence_only(translate_sentences(str(error)))

        work = self._load_changed_file(changes, file)
        self._doing.run_in_background(
            work, then=self._show_if_still_chosen, owner=self, failed=show_file_error
        )

    async def _load_changed_file(self, changes: FileChanges, file: FileChange) -> LoadedFileChange:
        before, after = await changes.contents_of_both_versions(file)
        if file.moved_from is not None:
            before = after
        hunks, sheet = await asyncio.to_thread(
            _build_hunks_and_sheet, before, after, two_columns=self.body.view.has_two_columns
        )
        kept_hunks: frozenset[str] = frozenset()
        if self._conversation:
            kept_by_path = await changes.kept_hunks_by_path(self._conversation)
            kept_hunks = kept_by_path.get(file.path_of_change, frozenset())
        return file, (before, after), hunks, sheet, kept_hunks

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
            title = f"{_since_turn_heading(turn)} · {turn.title}"[:MOST_WORDS]
            action = since.addAction(title.replace("&", "&&"))
            action.triggered.connect(lambda _=False, turn=turn: self.show_since_checkpoint(turn))
        menu.addAction(tr("Since a git revision…")).triggered.connect(
            self._ask_revision_and_show_changes_since
        )
        menu.popup(self.scope.mapToGlobal(self.scope.rect().bottomLeft()))

    def show_scope(self, scope: str, revision: str = "") -> None:
        """Shows the changes of a scope: "turns", "conversation" or "revision"."""
        self._scope = scope
        self._revision = revision
        words = {"turns": tr("Each turn"), "conversation": tr("The whole conversation")}
        self.scope.setText(words.get(scope, tr("Since {revision}", revision=revision)) + ARROW)
        self.reload_changes()

    def show_since_checkpoint(self, turn: TurnOfChanges) -> None:
        """Shows all differences since a turn's checkpoint, including the user's own changes."""
        self._scope = "checkpoint"
        self._checkpoint_turn_seq = turn.seq
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
        has_two_columns = self.columns.text() == tr("Unified") + ARROW
        name = tr("Unified")
        if has_two_columns:
            name = tr("Side by side")
        self.columns.setText(name + ARROW)
        self.body.view.show_columns(two=has_two_columns)

    def _mark_hunk_kept(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None and self._conversation:
            work = self._changes.keep_hunk(self._conversation, self._shown.path_of_change, hunk)
            self._run_for_page(work)

    def _ask_what_to_undo(self) -> None:
        """Offers what can be undone of the shown file's turn, or of the last turn."""
        turn = self._turn_of_selected_row()
        if turn is None:
            return
        began = self._turn_of_chosen_checkpoint(self._turns)
        if began is not None:
            self.undo.confirm_and_undo_since_turn(began, self._turns)
        else:
            self.undo.ask_what_to_undo(turn, self._turns, self._undone)

    def _report_undo_and_reload(self, words: str, button: Mapping[str, object]) -> None:
        self.notice_wanted.emit(words, button)
        self.reload_changes()

    def _turn_of_selected_row(self) -> TurnOfChanges | None:
        entry = self.files.current_changes_row
        if entry is not None and entry.turn is not None:
            return entry.turn
        if not self._turns:
            return None
        return self._turns[-1]

    def _send_line_comment_to_agent(self, line: int, text: str, words: str) -> None:
        if self._shown is not None:
            self.agent_message_written.emit(
                format_line_comment(self._shown.place, line, text, words)
            )

    def _open_file_or_folder(self) -> None:
        """Opens the file, or its folder if opening the file might run it."""
        if self._changes is None or self._shown is None:
            return
        open_file_or_its_folder(self._changes.path_on_disk(self._shown))

    def _run_for_page(self, work: Coroutine[Any, Any, Any], *, then: Any = None) -> None:
        self._doing.run_in_background(work, then=then, owner=self)


def _build_hunks_and_sheet(
    before: bytes, after: bytes, *, two_columns: bool
) -> tuple[Sequence[Hunk], DifferenceSheet]:
    hunks: Sequence[Hunk] = ()
    if not is_binary(before, after):
        hunks = find_hunks(before, after)
    rows = build_hunk_rows(hunks, two_columns=two_columns)
    return hunks, build_difference_sheet(rows, two_columns=two_columns)


def _build_group_rows(group: ChangesGroup, committed: frozenset[str]) -> list[ChangesListRow]:
    # A renamed file is one row.
    files = [file for file in group.files if not file.renamed or file.moved_from is not None]
    if not files:
        return []
    # Folders are listed only if no file changed.
    if is_change_of_folder(files[0].change):
        count = format_count(len(files), "{n} folder", "{n} folders")
    else:
        count = format_count(len(files), "{n} file", "{n} files")
    heading = f"{group.heading} · {count}"
    is_committed = committed.issuperset(file.path_of_change for file in files)
    if is_committed:
        heading += f" · {tr('committed')}"
    heading_row = ChangesListRow(
        heading=heading,
        turn=group.turn,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        is_committed=is_committed,
    )
    return [heading_row, *group_rows_by_folder(files, group.turn, committed)]


def _since_turn_heading(turn: TurnOfChanges) -> str:
    return tr("Since turn {number} began", number=turn.number)
