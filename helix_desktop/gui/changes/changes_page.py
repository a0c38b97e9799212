"""The Changes page: what each turn did to files, with actions to keep, undo, comment on
and commit it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QSplitter, QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, find_hunks, is_binary
from helix_desktop.engine.changes.folder_state import PathChange, is_change_of_folder
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
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
from helix_desktop.gui.changes.after_commit_bar import AfterCommitBar, AfterCommitWish
from helix_desktop.gui.changes.changed_file_view import ChangedFileView
from helix_desktop.gui.changes.changed_files_list import (
    ChangedFilesList,
    ChangesListRow,
    group_rows_by_folder,
    group_uncovered_paths_by_rule,
)
from helix_desktop.gui.changes.commit_button import CommitButton
from helix_desktop.gui.changes.coverage_dialog import CheckpointCoverageDialog
from helix_desktop.gui.changes.undo_and_redo import ChangesUndo, name_turn
from helix_desktop.gui.common.difference_rows import (
    DifferenceSheet,
    build_difference_sheet,
    build_hunk_rows,
)
from helix_desktop.gui.common.widgets import (
    add_menu_choice,
    build_plain_label,
    build_popup_menu,
    build_push_button,
    build_scroll_area,
    open_menu_below,
    set_surface_look,
)
from helix_desktop.gui.deep_links import open_file_or_its_folder
from helix_desktop.gui.question_dialogs import ask_text
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.shown_workspace import ShownFileChanges, file_changes_of_this_process
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import CheckpointProgress, FileChanges

# The file list's usual and least widths and least height, in pixels.
# On a page narrower than `NARROW`, the shown file is below the list.
WIDTH = 268
LEAST = 168
LOW = 96
NARROW = 440
MOST_MOMENTS = 20  # The most checkpoints in the menu.
ARROW = " ▾"


@dataclass(frozen=True, slots=True)
class ChangesGroup:
    """Files under one heading. `turn`: whose changes they are, if they are those of one turn."""

    heading: str
    files: Sequence[FileChange]
    turn: TurnOfChanges | None = None


@dataclass(frozen=True, slots=True)
class LoadedFileChange:
    """A changed file as its view needs it: both contents, how they differ, and the hunks that the
    user decided to keep. `is_committed`: it is as in the last commit. `is_read_again`: the file that
    was shown before the list was read again.
    """

    file: FileChange
    contents: tuple[bytes, bytes]
    hunks: Sequence[Hunk]
    sheet: DifferenceSheet
    kept_hunks: frozenset[str]
    is_committed: bool
    is_read_again: bool


@dataclass(frozen=True, slots=True)
class GatheredChanges:
    """What the page shows of a conversation, read in the background."""

    changes: ShownFileChanges
    conversation: str
    turns: Sequence[TurnOfChanges]
    rows: list[ChangesListRow]
    committed_paths: frozenset[str] = frozenset()
    why_no_commit: str = ""


class ChangesPage(QWidget):
    """Shows what each turn did to files. `intent_wanted` is for the window, as on every
    page; `agent_message_written` carries a message for the agent, `notice_wanted` one
    for the user and its button, and `failure_given` the name of a failed check and its log.
    """

    intent_wanted = Signal(object)
    agent_message_written = Signal(str)
    notice_wanted = Signal(str, dict)
    failure_given = Signal(str, str)
    columns_chosen = Signal(bool)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        """Builds the page: the list of changed files, the chosen one beside it, and
        above them what is compared with what. It is filled when a conversation is
        shown.
        """
        super().__init__(parent)
        self._theme = theme
        self._doing = doing

        # Whose changes are shown, and which of them the user chose.
        self._changes: ShownFileChanges | None = None
        self._stop_watching_changes: Callable[[], None] = lambda: None
        self._conversation = ""
        self._agent = ""
        self._scope = "turns"
        self._revision = ""
        self._checkpoint_turn_seq = 0

        # What was read of them.
        self._turns: Sequence[TurnOfChanges] = ()
        self._undone: list[TurnOfChanges] = []
        self._files: list[FileChange] = []
        self._shown: FileChange | None = None
        # The row of the file that was shown last, and in which list. If it is gone from there, no
        # other file is shown by itself.
        self._row_shown_last: ChangesListRow | None = None
        self._scope_of_shown_file = ""
        # What was selected, while the list is filled again.
        self._row_read_again: ChangesListRow | None = None
        self._is_up_to_date = False
        self._has_sizes = False
        self._turn_to_show = (0, "")  # The fact and the file to show once the turns are listed.
        self._note_on_commit = ""  # Why none is offered.

        self.files = ChangedFilesList(theme, self)
        self.body = ChangedFileView(theme, self)
        self.scope = build_push_button(tr("Each turn") + ARROW, self, look="pill")
        self.columns = build_push_button(tr("Unified") + ARROW, self, look="pill")
        self.cover_button = build_push_button(
            tr("Choose what checkpoints include…"), self, look="pill"
        )
        self.cover_button.hide()
        self._note = build_plain_label("", "muted", self)
        self.undo_button = build_push_button(tr("Undo") + ARROW, self, look="pill")
        self.commit_button = CommitButton(doing, self)
        self.after_commit = AfterCommitBar(theme, doing, self)
        self.undo = ChangesUndo(theme, doing, self.undo_button)
        self._lay_out_changes_page(theme)
        self._connect_changes_signals()

    def _connect_changes_signals(self) -> None:
        """Connects each button and list to what it does."""
        self.files.row_opened.connect(self._load_and_show_changed_file)
        self.scope.clicked.connect(self._show_scope_menu)
        self.columns.clicked.connect(self._show_columns_menu)
        self.undo_button.clicked.connect(self._ask_what_to_undo)
        self.cover_button.clicked.connect(self._ask_which_folders_to_cover)
        self.commit_button.notice_wanted.connect(self._show_plain_notice)
        self.commit_button.committed.connect(self.reload_changes)
        self.after_commit.notice_wanted.connect(self._show_plain_notice)
        self.after_commit.failure_given.connect(self.failure_given)
        self.undo.undone.connect(self._report_undo_and_reload)
        self.body.undo_button.clicked.connect(self._undo_shown_file)
        self.body.keep.clicked.connect(self._mark_shown_file_kept)
        self.body.open_in_editor.clicked.connect(self._open_file_or_folder)
        self.body.view.hunk_undo_requested.connect(self._undo_hunk_of_shown_file)
        self.body.view.hunk_keep_requested.connect(self._mark_hunk_kept)
        self.body.view.commented.connect(self._send_line_comment_to_agent)

    def _show_plain_notice(self, words: str) -> None:
        no_button: dict[str, object] = {}
        self.notice_wanted.emit(words, no_button)

    def _mark_shown_file_kept(self) -> None:
        self._mark_hunk_kept("")  # Without the id of a hunk, it is the whole file.

    def _undo_shown_file(self) -> None:
        if self._shown is not None:
            self.undo.plan_and_confirm_undo(self._shown.both_halves)

    def _undo_hunk_of_shown_file(self, hunk: str) -> None:
        if self._shown is not None:
            self.undo.undo_hunk(self._shown, hunk)

    def _lay_out_changes_page(self, theme: Theme) -> None:
        """Arranges the page from top to bottom: the bar with the note and the buttons, what can be
        done after a commit, and below a line the list of files beside the chosen file.
        """
        bar = QWidget(self)
        set_surface_look(bar, "page")
        choices = [self.scope, self.columns]
        actions = [self.cover_button, self.undo_button, self.commit_button]
        row = build_row(*choices, (self._note, 1), *actions, owner=bar, spacing=8, wraps=True)
        theme.keep_lengths_scaled(self, row.setContentsMargins, 20, 10, 20, 10)
        fixed = QSizePolicy.Policy.Fixed
        for button in choices:
            button.setSizePolicy(fixed, fixed)
        for button in actions:
            button.setSizePolicy(fixed, fixed)
        rule = QFrame(self)
        set_widget_look(rule, "rule")
        rule.setFixedHeight(1)

        set_surface_look(self.body, "page")
        self._split = QSplitter(Qt.Orientation.Horizontal, self, handleWidth=1)
        self._split.addWidget(self.files)
        self._split.addWidget(self.body)
        self._split.setStretchFactor(1, 1)
        self._split.setChildrenCollapsible(False)
        theme.keep_lengths_scaled(self, self.files.setMinimumSize, LEAST, LOW)
        scroll_area = build_scroll_area(self._split, self)
        build_column(
            bar, self.after_commit, rule, (scroll_area, 1), owner=self, margins=0, spacing=0
        )

    def show_changes_of(
        self, changes: ShownFileChanges | None, conversation: str, agent: str = ""
    ) -> None:
        """Shows the changes of a conversation, or of one without messages if the id is
        empty. `agent`: whose it is.
        """
        if changes is not self._changes:
            self._watch_checkpoints_of(changes)
            self._offer_what_needs_this_process(changes)
        self._changes = changes
        self._conversation = conversation
        self._agent = agent
        self.undo.set_changes(changes, conversation)
        self._turns = ()
        self._shown = None
        self._row_shown_last = None
        self._is_up_to_date = False
        self.files.show_changes_rows(())
        self.body.show_sentence_only("")
        if self.isVisible():
            self.reload_changes()

    def _watch_checkpoints_of(self, changes: ShownFileChanges | None) -> None:
        self._stop_watching_changes()
        if changes is None:
            self._stop_watching_changes = lambda: None
            return
        self._stop_watching_changes = changes.watch_checkpoints(
            self._show_checkpoint_progress_and_reload
        )
        self._show_coverage_note(changes.checkpoint_progress)

    def _offer_what_needs_this_process(self, changes: ShownFileChanges | None) -> None:
        """Offers a commit and the file itself only where the workspace is open: elsewhere, no path
        leads to its files.
        """
        is_elsewhere = changes is not None and file_changes_of_this_process(changes) is None
        self.body.can_open_files = not is_elsewhere
        self.commit_button.setVisible(not is_elsewhere)
        self._note_on_commit = ""
        if is_elsewhere:
            self._note_on_commit = _commits_are_made_elsewhere()

    def reload_if_files_changed(self, events: Sequence[Event]) -> None:
        for event in events:
            if _is_about_changed_files(event):
                self._is_up_to_date = False
        if self.isVisible() and not self._is_up_to_date:
            self.reload_changes()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._has_sizes:  # The page's width was not known before it was shown.
            list_width = min(self._theme.zoomed_pixels(WIDTH), self.width() // 3)
            self._split.setSizes([list_width, self.width() - list_width])
            self._has_sizes = True
        if self._is_up_to_date:
            self.after_commit.reload_if_branch_changed()
        else:
            self.reload_changes()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.WindowActivate:
            self.after_commit.reload_if_branch_changed()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.width() < self._theme.zoomed_pixels(NARROW):
            self._split.setOrientation(Qt.Orientation.Vertical)
        else:
            self._split.setOrientation(Qt.Orientation.Horizontal)

    def show_turn_of_fact(self, seq: int, path: str = "") -> None:
        """Shows the turn that contains a fact, and one file that it changed."""
        if not self._turns:
            self._turn_to_show = (seq, path)
            return
        for turn in self._turns:
            if not turn.seq <= seq <= turn.end:
                continue
            row = self._find_row_of_file(turn, path)
            if row is not None:
                self.files.setCurrentIndex(self.files.files.index(row))
            return

    def _find_row_of_file(self, turn: TurnOfChanges, path: str) -> int | None:
        """Returns the row of a file that a turn changed, or else the turn's first file."""
        first_row_of_turn: int | None = None
        for row, entry in enumerate(self.files.files.items):
            if entry.turn is not turn or entry.file is None:
                continue
            # `path` may be absolute, and a file's place begins at its root folder.
            if f"/{path}".endswith(f"/{entry.file.place}"):
                return row
            if first_row_of_turn is None:
                first_row_of_turn = row
        return first_row_of_turn

    def reload_changes(self) -> None:
        self._is_up_to_date = True
        changes = self._changes
        if changes is None:
            self.body.show_sentence_only(tr("No workspace is open."))
            return
        gathering = self._gather_changes(changes, self._conversation)
        self._run_for_page(gathering, then=self._show_gathered_changes)
        own_changes = file_changes_of_this_process(changes)
        if own_changes is not None:
            has_repository = own_changes.git_repository.has_repository()
            self._run_for_page(has_repository, then=self.commit_button.relabel_for_git)
        self.after_commit.show_branch_of(own_changes, self._conversation)

    def carry_out_after_commit(self, wish: AfterCommitWish) -> None:
        """Pushes the branch or opens a pull request, once the branch is read."""
        self.after_commit.carry_out_when_read(wish)
        self.reload_changes()

    async def _gather_changes(
        self, changes: ShownFileChanges, conversation: str
    ) -> GatheredChanges:
        """Reads what the page shows: the conversation's turns, their changes as rows of the list,
        and at the end the paths that the checkpoints do not cover. Runs in the background;
        `_show_gathered_changes` shows the result.
        """
        turns: Sequence[TurnOfChanges] = ()
        if conversation:
            turns = await changes.turns_with_changes(conversation)
        groups = await self._gather_groups(changes, turns)
        changed_paths: list[PathChange] = []
        for group in groups:
            for file in group.files:
                changed_paths.append(file.change)
        committed = await changes.git_repository.find_committed_paths(changed_paths)

        rows: list[ChangesListRow] = []
        undone_group = await self._gather_undone_commits(changes, turns, changed_paths)
        if undone_group is not None:
            rows += _build_group_rows(undone_group, committed)
        for group in groups:
            rows += _build_group_rows(group, committed)
        await changes.read_coverage()
        uncovered_paths = changes.list_uncovered_paths()
        if uncovered_paths:
            rows.append(ChangesListRow(heading=tr("Undo does not cover")))
        rows += group_uncovered_paths_by_rule(uncovered_paths)
        why_no_commit = await _explain_why_no_commit(changes, rows)
        return GatheredChanges(changes, conversation, turns, rows, committed, why_no_commit)

    async def _gather_undone_commits(
        self,
        changes: ShownFileChanges,
        turns: Sequence[TurnOfChanges],
        listed_changes: Sequence[PathChange],
    ) -> ChangesGroup | None:
        """Returns the files of which the user undid something after it was committed. The undo is a
        change that the next commit takes, but the turn that it undid may be gone from the list.
        """
        if self._scope != "turns":
            return None
        undos: list[ChangeSource] = []
        for turn in turns:
            for source in turn.sources:
                if source.fact.by == "undo":
                    undos.append(source)
        if not undos:
            return None
        undone_files = await changes.file_changes_of_steps(undos)
        undone_changes = [file.change for file in undone_files]
        repository = changes.git_repository
        changed_since_commit = await repository.find_paths_changed_since_commit(undone_changes)
        listed_paths = {change.path for change in listed_changes}
        files: list[FileChange] = []
        for file in undone_files:
            path = file.path_of_change
            if path in changed_since_commit and path not in listed_paths:
                files.append(file)
        if not files:
            return None
        return ChangesGroup(tr("Undone by you, not committed yet"), files)

    async def _gather_groups(
        self, changes: ShownFileChanges, turns: Sequence[TurnOfChanges]
    ) -> list[ChangesGroup]:
        """Returns the groups of the chosen scope, the newest first."""
        if self._scope == "revision":
            files = await changes.changes_since_revision(self._revision)
            return [ChangesGroup(tr("Since {revision}", revision=self._revision), files)]
        turn_of_checkpoint = self._turn_of_chosen_checkpoint(turns)
        if turn_of_checkpoint is not None:
            files = await changes.changes_since_checkpoint(turn_of_checkpoint.first_checkpoint)
            return [ChangesGroup(_since_turn_heading(turn_of_checkpoint, turns), files)]
        if self._scope == "conversation":
            sources: list[ChangeSource] = []
            for turn in turns:
                sources.extend(turn.sources)
            files = await changes.file_changes_of_steps(sources)
            return [ChangesGroup(tr("The whole conversation"), files)]

        newest_first = list(reversed(turns))
        files_by_turn = await changes.file_changes_of_groups(
            [turn.sources for turn in newest_first]
        )
        groups: list[ChangesGroup] = []
        for turn, files in zip(newest_first, files_by_turn, strict=True):
            groups.append(ChangesGroup(name_turn(turn, turns), files, turn))
        return groups

    def _turn_of_chosen_checkpoint(self, turns: Sequence[TurnOfChanges]) -> TurnOfChanges | None:
        if self._scope != "checkpoint":
            return None
        for turn in turns:
            if turn.seq == self._checkpoint_turn_seq:
                return turn
        return None

    def _show_gathered_changes(self, gathered: GatheredChanges) -> None:
        """Shows the changes that were read in the background.

        The file that was shown stays selected if it is still listed. A turn that was to be shown
        as soon as the turns are known is shown now, once.
        """
        is_of_same_workspace = gathered.changes is self._changes
        if not is_of_same_workspace or gathered.conversation != self._conversation:
            return  # Another conversation was chosen meanwhile.
        self._turns = gathered.turns
        self.undo.turns = gathered.turns
        self.undo.committed_paths = gathered.committed_paths
        self._undone = self._find_undone_turns(gathered.rows)
        self._files = [row.file for row in gathered.rows if row.file is not None]

        self._list_files_again(gathered.rows)
        self._note_on_commit = gathered.why_no_commit
        self._show_coverage_note(gathered.changes.checkpoint_progress)

        seq, path = self._turn_to_show
        if seq and self._turns:
            self._turn_to_show = (0, "")
            self.show_turn_of_fact(seq, path)
        self.undo_button.setEnabled(bool(self._turns))
        self._offer_files_to_commit(gathered)

    def _list_files_again(self, rows: list[ChangesListRow]) -> None:
        """Selects the file that was shown. If it is gone from the list, none is: another file would
        bring its own Undo to where one was just pressed.
        """
        if self._shown is not None:
            self._row_shown_last = self.files.current_changes_row
        focused = self.window().focusWidget()
        had_focus = focused is not None and self.body.isAncestorOf(focused)
        self._shown = None
        self._row_read_again = self._row_shown_last
        is_other_list = self._scope_of_shown_file != self._scope
        selects_other_file = self._row_shown_last is None or is_other_list
        self.files.show_changes_rows(
            rows, self._row_shown_last, selects_other_file=selects_other_file
        )
        self._row_read_again = None
        if not self._files:
            self._row_shown_last = None
            self.body.show_sentence_only(self._explain_empty_list())
        elif self._shown is None:
            self.body.show_sentence_only(self._explain_missing_file())
            if had_focus:
                # For any other reason, the list would choose its first file.
                self.files.setFocus(Qt.FocusReason.MouseFocusReason)

    def _find_undone_turns(self, rows: Sequence[ChangesListRow]) -> list[TurnOfChanges]:
        """Returns turns that have no row because the user undid what they changed."""
        if self._scope != "turns":
            return []
        turns_with_rows = [row.turn for row in rows]
        undone_turns: list[TurnOfChanges] = []
        for turn in self._turns:
            if _has_user_undo(turn) and turn not in turns_with_rows:
                undone_turns.append(turn)
        return undone_turns

    def _explain_missing_file(self) -> str:
        """Says why the file that was shown last is not in the list any more."""
        row = self._row_shown_last
        undone_turns = [turn.seq for turn in self._undone]
        if row is not None and row.turn is not None and row.turn.seq in undone_turns:
            return tr(
                "You undid the changes of this turn. You can redo them from the Undo menu, or choose another file in the list."
            )
        return tr("Nothing is left of this change. Choose another file in the list.")

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
        own_changes = file_changes_of_this_process(gathered.changes)
        if own_changes is not None:
            files = _list_files_to_commit(gathered.rows)
            self.commit_button.set_files_to_commit(own_changes, gathered.conversation, files)
            self.commit_button.setToolTip(gathered.why_no_commit)

    def _show_checkpoint_progress_and_reload(self, progress: CheckpointProgress) -> None:
        self._show_coverage_note(progress)
        # Only now are the uncovered files known.
        if progress.state == "ready" and self.isVisible():
            self.reload_changes()

    def _show_coverage_note(self, progress: CheckpointProgress) -> None:
        """Shows above the list whose changes it has, or a note about the checkpoints (the saved
        states of the workspace's files) if they are being made, are off or failed. If some files
        are too large for them, a button lets the user choose which folders to cover.
        """
        uncovered_paths: Sequence[UncoveredPath] = ()
        if self._changes is not None:
            uncovered_paths = self._changes.list_uncovered_paths()
        has_too_large_files = any(path.is_beyond_limits for path in uncovered_paths)
        is_open_here = file_changes_of_this_process(self._changes) is not None
        self.cover_button.setVisible(has_too_large_files and is_open_here)

        usual_note = tr("This list includes your own changes, too.")
        if self._scope in ("turns", "conversation"):
            usual_note = tr(
                "This list shows changes by the agent and its commands, not your own edits."
            )
        if has_too_large_files:
            too_large_note = tr("The files below are too large for checkpoints.")
            usual_note = join_sentences(usual_note, too_large_note)
        if self._note_on_commit:
            usual_note = join_sentences(usual_note, self._note_on_commit)
        # The usual note is for a state that has no note of its own.
        note = translate_name(
            "checkpoints",
            progress.state,
            otherwise=usual_note,
            done=progress.files,
            all=progress.of_files,
            why=progress.why,
        )
        self._note.setText(note)

    def _ask_which_folders_to_cover(self) -> None:
        """Shows the largest folders of a folder that exceeds the limit, for the user to choose."""
        changes = file_changes_of_this_process(self._changes)
        if changes is None:
            return
        dialog = CheckpointCoverageDialog(self)
        dialog.coverage_chosen.connect(partial(self._cover_all_but, changes))
        dialog.open()
        self._doing.run_in_background(
            changes.largest_subfolders(), then=dialog.show_folder_sizes, owner=dialog
        )

    def _cover_all_but(self, changes: FileChanges, left_out: Sequence[str]) -> None:
        new_rules: list[str] | None = None  # None leaves the rules as they are.
        if left_out:
            new_rules = list(changes.coverage_in_settings.leave_out)
            new_rules += left_out
        self._run_for_page(changes.change_coverage(all_of_it=True, leave_out=new_rules))

    def _load_and_show_changed_file(self, entry: ChangesListRow) -> None:
        """Reads both versions of the chosen file in the background and shows them,
        unless the user has chosen another one by then.
        """
        file = entry.file
        changes = self._changes
        if file is None or changes is None:
            return
        self._shown = file

        def show_file_error(error: HelixError) -> None:
            # The file's content could not be read. The previous file must not stay visible.
            if file is self._shown:
                self.body.show_sentence_only(translate_sentences(str(error)))

        row_before = self._row_read_again
        is_read_again = row_before is not None and entry.shows_same_file_as(row_before)
        self._scope_of_shown_file = self._scope
        work = self._load_changed_file(changes, entry, file, is_read_again=is_read_again)
        self._doing.run_in_background(
            work, then=self._show_if_still_chosen, owner=self, failed=show_file_error
        )

    async def _load_changed_file(
        self,
        changes: ShownFileChanges,
        entry: ChangesListRow,
        file: FileChange,
        *,
        is_read_again: bool,
    ) -> LoadedFileChange:
        """Reads a file before and after its change, and works out the changed places
        (hunks) and which of them the user marked as kept. Comparing runs in a thread: a
        large file takes a while.
        """
        old_content, new_content = await changes.contents_of_both_versions(file)
        if file.moved_from is not None:  # Only its name changed.
            old_content = new_content
        hunks, sheet = await asyncio.to_thread(
            _build_hunks_and_sheet,
            old_content,
            new_content,
            two_columns=self.body.view.has_two_columns,
        )
        kept_hunks: frozenset[str] = frozenset()
        if self._conversation:
            kept_by_path = await changes.kept_hunks_by_path(self._conversation)
            kept_hunks = kept_by_path.get(file.path_of_change, frozenset())
        contents = (old_content, new_content)
        return LoadedFileChange(
            file, contents, hunks, sheet, kept_hunks, entry.is_committed, is_read_again
        )

    def _show_if_still_chosen(self, loaded: LoadedFileChange) -> None:
        if loaded.file is self._shown:
            self.body.show_changed_file(
                loaded.file,
                loaded.contents,
                loaded.hunks,
                sheet=loaded.sheet,
                kept=loaded.kept_hunks,
                is_committed=loaded.is_committed,
                is_read_again=loaded.is_read_again,
            )

    def _show_scope_menu(self) -> None:
        menu = build_popup_menu(self)
        menu.addAction(tr("Each turn"), partial(self.show_scope, "turns"))
        menu.addAction(tr("The whole conversation"), partial(self.show_scope, "conversation"))
        checkpoint_menu = menu.addMenu(tr("Since a checkpoint"))
        checkpoint_menu.setEnabled(bool(self._turns))
        for turn in reversed(self._turns[-MOST_MOMENTS:]):
            label = _since_turn_heading(turn, self._turns)
            # Qt would take "&" for the mark of a shortcut key.
            safe_label = label.replace("&", "&&")
            show_turn = partial(self.show_since_checkpoint, turn)
            checkpoint_menu.addAction(safe_label, show_turn)
        menu.addAction(tr("Since a git revision…"), self._ask_revision_and_show_changes_since)
        open_menu_below(menu, self.scope)

    def show_scope(self, scope: str, revision: str = "") -> None:
        """Shows the changes of a scope: "turns", "conversation" or "revision"."""
        self._scope = scope
        self._revision = revision
        if scope == "turns":
            words = tr("Each turn")
        elif scope == "conversation":
            words = tr("The whole conversation")
        else:
            words = tr("Since {revision}", revision=revision)
        self.scope.setText(words + ARROW)
        self.reload_changes()

    def show_since_checkpoint(self, turn: TurnOfChanges) -> None:
        """Shows all differences since a turn's checkpoint, including the user's own changes."""
        self._scope = "checkpoint"
        self._checkpoint_turn_seq = turn.seq
        self.scope.setText(_since_turn_heading(turn, self._turns) + ARROW)
        self.reload_changes()

    def _ask_revision_and_show_changes_since(self) -> None:
        title = tr("Changes since")
        ask_text(self, title, tr("Revision"), "HEAD", self._show_changes_since_revision)

    def _show_changes_since_revision(self, revision: str) -> None:
        self.show_scope("revision", revision.strip())

    def _show_columns_menu(self) -> None:
        has_two_columns = self.body.view.has_two_columns
        menu = build_popup_menu(self)
        choose_unified = partial(self._choose_columns, two=False)
        choose_side_by_side = partial(self._choose_columns, two=True)
        add_menu_choice(menu, tr("Unified"), choose_unified, chosen=not has_two_columns)
        add_menu_choice(menu, tr("Side by side"), choose_side_by_side, chosen=has_two_columns)
        open_menu_below(menu, self.columns)

    def _choose_columns(self, *, two: bool) -> None:
        self.show_columns(two=two)
        self.columns_chosen.emit(two)

    def show_columns(self, *, two: bool) -> None:
        """Shows old and new lines side by side (`two`), or the new ones below the old ones."""
        words = tr("Unified")
        if two:
            words = tr("Side by side")
        self.columns.setText(words + ARROW)
        self.body.view.show_columns(two=two)

    def _mark_hunk_kept(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None and self._conversation:
            work = self._changes.keep_hunk(self._conversation, self._shown.path_of_change, hunk)
            self._run_for_page(work)

    def _ask_what_to_undo(self) -> None:
        """Offers what can be undone of the shown file's turn, or of the last turn."""
        turn = self._turn_of_selected_row()
        if turn is None:
            return
        turn_of_checkpoint = self._turn_of_chosen_checkpoint(self._turns)
        if turn_of_checkpoint is None:
            committed_file = None
            row = self.files.current_changes_row
            if row is not None and row.is_committed:
                committed_file = row.file
            self.undo.ask_what_to_undo(turn, self._turns, self._undone, committed_file)
        else:
            self.undo.confirm_and_undo_since_turn(turn_of_checkpoint, self._turns)

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
        changes = file_changes_of_this_process(self._changes)
        if changes is None or self._shown is None:
            return
        open_file_or_its_folder(changes.path_on_disk(self._shown))

    def _run_for_page(self, work: Coroutine[Any, Any, Any], *, then: Any = None) -> None:
        self._doing.run_in_background(work, then=then, owner=self)


def _list_files_to_commit(rows: Sequence[ChangesListRow]) -> list[FileChange]:
    files_by_path: dict[str, FileChange] = {}
    for row in rows:
        if row.file is None or row.is_committed:
            continue
        if not is_change_of_folder(row.file.change):
            files_by_path[row.file.path_of_change] = row.file
    return list(files_by_path.values())


async def _explain_why_no_commit(changes: ShownFileChanges, rows: Sequence[ChangesListRow]) -> str:
    """Says why no commit is offered, and where what others have changed is committed."""
    own_changes = file_changes_of_this_process(changes)
    if own_changes is None:
        return _commits_are_made_elsewhere()
    repository = own_changes.git_repository
    if _list_files_to_commit(rows) or not await repository.has_repository():
        return ""
    if await repository.has_uncommitted_changes():
        return tr("There is nothing to commit in this list. The repository has other uncommitted changes. To commit them, choose “Since a git revision…” above.")  # fmt: skip
    return tr("There is nothing to commit in this list.")


def _commits_are_made_elsewhere() -> str:
    return tr("You can commit only where the workspace was opened first: in another window, or on the other computer.")  # fmt: skip


def _is_about_changed_files(event: Event) -> bool:
    if not isinstance(event, FactAppended):
        return False
    return isinstance(event.recorded.fact, FilesChanged | ChangeKept)


def _build_hunks_and_sheet(
    old_content: bytes, new_content: bytes, *, two_columns: bool
) -> tuple[Sequence[Hunk], DifferenceSheet]:
    hunks: Sequence[Hunk] = ()
    if not is_binary(old_content, new_content):
        hunks = find_hunks(old_content, new_content)
    rows = build_hunk_rows(hunks, two_columns=two_columns)
    return hunks, build_difference_sheet(rows, two_columns=two_columns)


def _count_files_and_folders(files: Sequence[FileChange]) -> str:
    folder_count = sum(is_change_of_folder(file.change) for file in files)
    file_count = len(files) - folder_count
    counts = ""
    if file_count:
        counts += " · " + format_count(file_count, "{n} file", "{n} files")
    if folder_count:
        counts += " · " + format_count(folder_count, "{n} folder", "{n} folders")
    return counts


def _build_group_rows(group: ChangesGroup, committed: frozenset[str]) -> list[ChangesListRow]:
    """Returns the rows of a group: its heading, which counts the files and changed lines, and below
    it the files by folder. `committed` are the paths that are as in the last commit.
    """
    # A renamed file is two changes, one for each name, but one row.
    files: list[FileChange] = []
    for file in group.files:
        is_half_with_old_name = file.renamed and file.moved_from is None
        if not is_half_with_old_name:
            files.append(file)
    if not files:
        return _build_row_of_undone_turn(group)

    # Git keeps no empty folders, so files alone can be committed.
    paths_of_files = {file.path_of_change for file in files if not is_change_of_folder(file.change)}
    is_committed = bool(paths_of_files) and committed.issuperset(paths_of_files)
    ending = _count_files_and_folders(files)
    if is_committed:
        ending += f" · {tr('committed')}"
    heading_row = ChangesListRow(
        heading=f"{group.heading}{ending}",
        whole_ending=ending,
        turn=group.turn,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        is_committed=is_committed,
    )
    rows = [heading_row]
    rows += group_rows_by_folder(files, group.turn, committed)
    return rows


def _build_row_of_undone_turn(group: ChangesGroup) -> list[ChangesListRow]:
    """Returns a heading for a turn of which the user undid everything, so that it does not seem
    lost, or nothing for a turn that left no changes by itself.
    """
    if group.turn is None or not _has_user_undo(group.turn):
        return []
    ending = f" · {tr('undone')}"
    return [ChangesListRow(heading=f"{group.heading}{ending}", whole_ending=ending)]


def _has_user_undo(turn: TurnOfChanges) -> bool:
    return len(without_user_undos(turn.sources)) < len(turn.sources)


def _since_turn_heading(turn: TurnOfChanges, turns: Sequence[TurnOfChanges]) -> str:
    return tr("Since {turn}", turn=name_turn(turn, turns))
