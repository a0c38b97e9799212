"""The Changes page: what each turn did to files; keep it, undo it, comment on it, commit it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QSplitter, QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, binary, find_hunks
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    format_line_comment,
    step_with_undos,
    undone_facts,
    without_user_undos,
)
from helix_desktop.engine.facts import ChangeKept, FilesChanged
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.changed_file_view import ChangedFileView
from helix_desktop.gui.changes.changed_files_list import ChangedFilesList, ChangesListRow, group_rows_by_folder
from helix_desktop.gui.changes.commit_dialog import CommitDialog
from helix_desktop.gui.changes.coverage_dialog import CheckpointCoverageDialog
from helix_desktop.gui.changes.undo_dialog import ThreeVersionsDialog, UndoChangesDialog
from helix_desktop.gui.changes_port import FileChangesPort, FirstCheckpointProgress, UndoResultPort
from helix_desktop.gui.deep_links import open_in_desktop_program
from helix_desktop.gui.engine_sentences import join_sentences, translate_sentences
from helix_desktop.gui.layouts import build_column, build_row
from helix_desktop.gui.question_dialogs import ask_text
from helix_desktop.gui.shared.difference_rows import DifferenceSheet, build_difference_sheet, build_hunk_rows
from helix_desktop.gui.shared.elided_label import ElidedLabel
from helix_desktop.gui.shared.figure_formats import format_byte_size
from helix_desktop.gui.shared.plain_widgets import build_popup_menu, build_push_button
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, format_number, tr

# Widths in pixels: of the file list, its least, and of the sentence beside the buttons.
WIDTH, LEAST, NOTE = 268, 168, 90
MOST_MOMENTS, MOST_WORDS = 20, 90  # The most checkpoints in the menu, and characters of each.
MOST_STEPS = 8  # The most steps of a turn that are offered one by one.
ARROW = " ▾"
LoadedFileChange = tuple[FileChange, tuple[bytes, bytes], Sequence[Hunk], DifferenceSheet, frozenset[str]]
EXECUTABLE_SUFFIXES = (".desktop", ".sh", ".bash", ".command", ".app", ".bat", ".cmd", ".exe", ".jar")


class ChangesPage(QWidget):
    """Shows what each turn did to files. `intent_wanted` is for the window, as on every page;
    `agent_message_written` carries a message for the agent, `notice_wanted` one for the user.
    """

    intent_wanted = Signal(object)
    agent_message_written = Signal(str)
    notice_wanted = Signal(str)

    def __init__(self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._changes: FileChangesPort | None = None
        self._conversation = ""
        self._turns: Sequence[TurnOfChanges] = ()
        self._undone: list[TurnOfChanges] = []
        self._files: list[FileChange] = []
        self._scope, self._revision, self._checkpoint_turn_seq = "turns", "", 0
        self._is_up_to_date = False
        self._has_git = True
        self._unused_messages: dict[str, str] = {}  # The messages of commits that were not made, by conversation.
        self._turn_to_show = (0, "")  # The fact whose turn will be shown once it is known, and the file in it.
        self._shown: FileChange | None = None
        self.files = ChangedFilesList(theme, self)
        self.body = ChangedFileView(theme, self)
        self.scope, self.columns = (
            build_push_button(tr("Each turn") + ARROW, self, look="pill"),
            build_push_button(tr("Unified") + ARROW, self, look="pill"),
        )
        self.cover_button = build_push_button(tr("Choose what checkpoints cover…"), self, look="pill")
        self.cover_button.hide()
        self._stop_watching_changes: Callable[[], None] = lambda: None
        self._note = ElidedLabel(self, least=theme.zoomed_pixels(NOTE))
        set_widget_look(self._note, "muted")
        self.undo_button, self.commit_button = (
            build_push_button(tr("Undo") + ARROW, self, look="pill"),
            build_push_button(tr("Commit…"), self, look="primary"),
        )
        self._lay_out_changes_page(theme)
        self.files.row_opened.connect(self._open_changed_file)
        self.scope.clicked.connect(self._show_scope_menu)
        self.columns.clicked.connect(self._toggle_side_by_side)
        self.undo_button.clicked.connect(self._ask_what_to_undo)
        self.cover_button.clicked.connect(self._ask_what_to_cover)
        self.commit_button.clicked.connect(self._show_commit_dialog)
        self.body.undo_wanted.connect(lambda: self._plan_and_confirm_undo([self._shown] if self._shown else []))
        self.body.keep_wanted.connect(lambda: self._keep_change(""))
        self.body.editor_wanted.connect(self._open_file_or_folder)
        self.body.view.hunk_undo_requested.connect(self._undo_hunk)
        self.body.view.hunk_keep_requested.connect(self._keep_change)
        self.body.view.commented.connect(self._comment_line_to_agent)

    def _lay_out_changes_page(self, theme: Theme) -> None:
        bar = QWidget(self)
        for each in (bar, self.body):
            set_widget_look(each, "page")
            each.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        theme.keep_scaled(self, bar.setFixedHeight, 53)
        row = build_row(
            self.scope,
            self.columns,
            self._note,
            self.cover_button,
            1,
            self.undo_button,
            self.commit_button,
            owner=bar,
            spacing=8,
        )
        theme.keep_scaled(self, row.setContentsMargins, 20, 10, 20, 10)
        for button in (self.scope, self.columns, self.cover_button, self.undo_button, self.commit_button):
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        rule = QFrame(self)
        set_widget_look(rule, "rule")
        rule.setFixedHeight(1)
        split = QSplitter(Qt.Orientation.Horizontal, self)
        split.setHandleWidth(1)
        split.addWidget(self.files)
        split.addWidget(self.body)
        split.setStretchFactor(1, 1)
        split.setCollapsible(0, False)
        theme.keep_scaled(self, self.files.setMinimumWidth, LEAST)
        self._split: QSplitter | None = split
        build_column(bar, rule, (split, 1), owner=self, margins=0, spacing=0)

    def show_changes_of(self, changes: FileChangesPort | None, conversation: str) -> None:
        """The changes of a conversation; empty: of one that has not begun."""
        if changes is not self._changes:
            self._stop_watching_changes()
            self._stop_watching_changes = (
                changes.watch_checkpoints(self._on_checkpoint_progress) if changes is not None else lambda: None
            )
            if changes is not None:
                self._show_coverage_note(changes.checkpoint_progress)
        self._changes, self._conversation = changes, conversation
        self._turns, self._shown, self._is_up_to_date = (), None, False
        self.files.show_changes_rows(())
        self.body.show_sentence_only("")
        if self.isVisible():
            self.reload_changes()

    def refresh_after_events(self, events: Sequence[Event]) -> None:
        facts = (event.recorded.fact for event in events if isinstance(event, FactAppended))
        if any(isinstance(fact, FilesChanged | ChangeKept) for fact in facts):
            self._is_up_to_date = False
            if self.isVisible():
                self.reload_changes()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._split is not None:  # On a first resize there is no sidebar to restore yet.
            files = min(self._theme.zoomed_pixels(WIDTH), self.width() // 3)
            self._split.setSizes([files, self.width() - files])
            self._split = None
        if not self._is_up_to_date:
            self.reload_changes()

    def show_turn_of_fact(self, seq: int, path: str = "") -> None:
        """The turn of a fact, from the chat, and a file that it changed."""
        if not self._turns:
            self._turn_to_show = seq, path
            return
        turn = next((turn for turn in self._turns if turn.seq <= seq <= turn.end), None)
        rows = [row for row, entry in enumerate(self.files.files.items) if entry.turn is turn and entry.file]
        if turn is not None and rows:
            entries = self.files.files.items
            named = (row for row in rows if (file := entries[row].file) and f"/{path}".endswith(f"/{file.place}"))
            self.files.setCurrentIndex(self.files.files.index(next(named, rows[0])))

    def reload_changes(self) -> None:
        self._is_up_to_date = True
        changes, conversation = self._changes, self._conversation
        if changes is None:
            self.body.show_sentence_only(tr("No workspace is open."))
            return
        self._run_for_page(self._gather_changes_rows(changes, conversation), then=self._show_gathered_changes)
        self._run_for_page(changes.git_repository.has_repository(), then=self._name_commit_button)

    def _name_commit_button(self, has_git: bool) -> None:  # noqa: FBT001 - the result of a task
        """In a folder without git the way to a commit begins with a repository."""
        self._has_git = has_git
        self.commit_button.setText(tr("Commit…") if has_git else tr("Set up git here"))
        set_widget_look(self.commit_button, "primary" if has_git else "")

    def _set_up_git(self, changes: FileChangesPort) -> None:
        def show_commit_dialog(_done: None) -> None:
            self._name_commit_button(has_git=True)
            self.notice_wanted.emit(tr("This folder has a git repository now. Choose what its first commit contains."))
            self._show_commit_dialog()

        self._run_for_page(changes.git_repository.set_up_repository(), then=show_commit_dialog)

    async def _gather_changes_rows(
        self, changes: FileChangesPort, conversation: str
    ) -> tuple[FileChangesPort, str, Sequence[TurnOfChanges], list[ChangesListRow]]:
        turns = await changes.turns_with_changes(conversation) if conversation else ()
        entries: list[ChangesListRow] = []
        match self._scope:
            case "revision":
                files = await changes.changes_since_revision(self._revision)
                entries = _build_group_rows(tr("Since {revision}", revision=self._revision), files, None)
            case "checkpoint" if (began := self._turn_of_chosen_checkpoint(turns)) is not None:
                entries = _build_group_rows(
                    _since_turn_heading(began), await changes.changes_since_checkpoint(began.first_checkpoint), None
                )
            case "conversation":
                sources = [source for turn in turns for source in turn.sources]
                entries = _build_group_rows(
                    tr("The whole conversation"), await changes.file_changes_of_steps(sources), None
                )
            case _:
                for turn in reversed(turns):
                    files = await changes.file_changes_of_steps(turn.sources)
                    entries += _build_group_rows(_turn_heading(turn), files, turn)
        left = changes.list_uncovered_paths()
        if left:
            entries.append(ChangesListRow(heading=tr("Not covered")))
            entries += [ChangesListRow(uncovered=one) for one in left]
        return changes, conversation, turns, entries

    def _turn_of_chosen_checkpoint(self, turns: Sequence[TurnOfChanges]) -> TurnOfChanges | None:
        """The turn before which the chosen checkpoint was taken."""
        return (
            next((turn for turn in turns if turn.seq == self._checkpoint_turn_seq), None)
            if self._scope == "checkpoint"
            else None
        )

    def _show_gathered_changes(
        self, gathered: tuple[FileChangesPort, str, Sequence[TurnOfChanges], list[ChangesListRow]]
    ) -> None:
        changes, conversation, turns, entries = gathered
        if changes is not self._changes or conversation != self._conversation:
            return
        self._turns, shown = turns, [entry.turn for entry in entries]
        gone = (
            turn for turn in turns if turn not in shown and len(without_user_undos(turn.sources)) < len(turn.sources)
        )
        self._undone = list(gone) if self._scope == "turns" else []
        self._files = [entry.file for entry in entries if entry.file is not None]
        wanted, self._shown = (self._shown.path_of_change if self._shown else ""), None
        self.files.show_changes_rows(entries, wanted)
        if not self._files:
            redo = tr("The agent's changes here have been undone. You can redo them from the Undo menu.")
            self.body.show_sentence_only(redo if self._undone else tr("The agent has not changed any files here."))
        self._show_coverage_note(changes.checkpoint_progress)
        if self._turn_to_show[0] and self._turns:
            (seq, path), self._turn_to_show = self._turn_to_show, (0, "")
            self.show_turn_of_fact(seq, path)
        self.undo_button.setEnabled(bool(self._turns))
        self.commit_button.setEnabled(bool(self._files))

    def _on_checkpoint_progress(self, progress: FirstCheckpointProgress) -> None:
        self._show_coverage_note(progress)
        if progress.state == "ready" and self.isVisible():  # Now it is known what is not covered.
            self.reload_changes()

    def _show_coverage_note(self, progress: FirstCheckpointProgress) -> None:
        words = {
            "reading": tr(
                "The first checkpoint is being made: {done} of {all} files.", done=progress.files, all=progress.of_files
            ),
            "off": tr("Checkpoints are turned off for this workspace."),
            "failed": tr("The last checkpoint failed: {why}", why=progress.why),
        }
        by_agent = tr("Changed by the agent and its commands; your own edits are not included.")
        usual = (
            by_agent if self._scope in ("turns", "conversation") else tr("All changes since then, including your own.")
        )
        over = self._changes is not None and any(left.is_beyond_limits for left in self._changes.list_uncovered_paths())
        if over:
            usual = join_sentences(
                usual, tr("Some files are beyond the limits and not covered; they are listed below.")
            )
        self.cover_button.setVisible(over)
        first = tr(
            "First checkpoint: {files} files, {size}, {seconds} seconds.",
            files=format_number(progress.files),
            size=format_byte_size(progress.bytes),
            seconds=format_number(progress.seconds, 1),
        )
        self._note.set_elided_text(
            words.get(progress.state, usual), first if progress.state == "ready" and progress.files else ""
        )

    def _ask_what_to_cover(self) -> None:
        """A folder over the limit: its largest folders, for the user to choose."""
        changes = self._changes
        if changes is None:
            return

        def cover_chosen_folders(leave_out: Sequence[str], all_of_it: bool) -> None:  # noqa: FBT001 -- as the dialog says it
            rules = [*changes.exclusion_rules(), *leave_out] if leave_out else None
            self._run_for_page(changes.change_coverage(all_of_it=all_of_it, leave_out=rules))

        dialog = CheckpointCoverageDialog(self._theme, self)
        dialog.coverage_chosen.connect(cover_chosen_folders)
        dialog.open()
        self._doing.run_in_background(changes.largest_subfolders(), then=dialog.show_folder_sizes, owner=dialog)

    def _open_changed_file(self, entry: ChangesListRow) -> None:
        file, changes = entry.file, self._changes
        if file is None or changes is None:
            return
        self._shown = file

        def show_file_error(
            error: HelixError,
        ) -> None:  # The content was forgotten or removed. The previous file must not stay visible.
            if file is self._shown:
                self.body.show_sentence_only(translate_sentences(str(error)))

        work = self._load_changed_file(changes, file)
        self._doing.run_in_background(work, then=self._show_if_still_chosen, owner=self, failed=show_file_error)

    async def _load_changed_file(self, changes: FileChangesPort, file: FileChange) -> LoadedFileChange:
        contents = await changes.contents_of_both_versions(file)
        found, made = await asyncio.to_thread(_build_hunks_and_sheet, *contents, columns=self.body.view.has_two_columns)
        kept = await changes.kept_hunks_by_path(self._conversation) if self._conversation else {}
        return file, contents, found, made, kept.get(file.path_of_change, frozenset())

    def _show_if_still_chosen(self, looked: LoadedFileChange) -> None:
        if looked[0] is self._shown:
            self.body.show_changed_file(*looked)

    def _show_scope_menu(self) -> None:
        menu = build_popup_menu(self)
        menu.addAction(tr("Each turn")).triggered.connect(lambda: self.show_scope("turns"))
        menu.addAction(tr("The whole conversation")).triggered.connect(lambda: self.show_scope("conversation"))
        since = menu.addMenu(tr("Since a checkpoint"))
        since.setEnabled(bool(self._turns))
        for turn in self._turns[: -MOST_MOMENTS - 1 : -1]:
            action = since.addAction(f"{_since_turn_heading(turn)} · {turn.title}"[:MOST_WORDS].replace("&", "&&"))
            action.triggered.connect(lambda _=False, turn=turn: self.show_since_checkpoint(turn))
        menu.addAction(tr("Since a git revision…")).triggered.connect(self._ask_git_revision)
        menu.popup(self.scope.mapToGlobal(self.scope.rect().bottomLeft()))

    def show_scope(self, scope: str, revision: str = "") -> None:
        """turns, conversation or revision."""
        self._scope, self._revision = scope, revision
        words = {"turns": tr("Each turn"), "conversation": tr("The whole conversation")}
        self.scope.setText(words.get(scope, tr("Since {revision}", revision=revision)) + ARROW)
        self.reload_changes()

    def show_since_checkpoint(self, turn: TurnOfChanges) -> None:
        """Show all differences from the checkpoint before a turn, the user's own included."""
        self._scope, self._checkpoint_turn_seq = "checkpoint", turn.seq
        self.scope.setText(_since_turn_heading(turn) + ARROW)
        self.reload_changes()

    def _ask_git_revision(self) -> None:
        ask_text(
            self, tr("Changes since"), tr("Revision"), "HEAD", lambda text: self.show_scope("revision", text.strip())
        )

    def _toggle_side_by_side(self) -> None:
        two = self.columns.text() == tr("Unified") + ARROW
        self.columns.setText((tr("Side by side") if two else tr("Unified")) + ARROW)
        self.body.view.show_columns(two=two)

    def _keep_change(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None and self._conversation:
            work = self._changes.keep_hunk(self._conversation, self._shown.path_of_change, hunk)
            self._run_for_page(work)

    def _undo_hunk(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None:
            work = self._changes.undo_hunks(self._shown, [hunk], conversation=self._conversation)
            self._run_for_page(work, then=self._report_undone_hunk)

    def _ask_what_to_undo(self) -> None:
        """What can be undone of the turn of the file that is shown, or of the last one."""
        turn, changes = self._turn_of_selected_row(), self._changes
        if turn is None or changes is None:
            return
        if (began := self._turn_of_chosen_checkpoint(self._turns)) is not None:
            self._undo_since_turn(began)
            return
        menu = partial(self._show_undo_menu, turn)
        self._run_for_page(self._undoable_steps(changes, turn), then=menu)

    async def _undoable_steps(self, changes: FileChangesPort, turn: TurnOfChanges) -> Sequence[ChangeSource]:
        """The last steps of a turn that are not undone already; none where the turn has one alone."""
        steps = without_user_undos(turn.sources)
        last = steps[-MOST_STEPS:] if len(steps) > 1 and turn not in self._undone else ()
        return [step for step in last if await changes.changes_with_folders(step_with_undos(step, turn.sources))]

    def _show_undo_menu(self, turn: TurnOfChanges, steps: Sequence[ChangeSource]) -> None:
        """Turns that were undone again; each of the steps; the turn; all since it began."""
        later = [each for each in self._turns if each.seq >= turn.seq and each not in self._undone]
        menu = build_popup_menu(self)
        for each in reversed(self._undone[-MOST_STEPS:]):
            redo = tr("Redo turn {number}…", number=each.turn_numbers)
            menu.addAction(redo).triggered.connect(
                lambda _=False, e=each, w=redo: self.undo_change_sources(e.sources, w)
            )
        for step in reversed(steps):
            one = tr("Undo step {step} ({tool})…", step=step.step, tool=step.what or step.fact.by)
            menu.addAction(one).triggered.connect(lambda _=False, s=step, w=one: self.undo_change_sources([s], w))
        if turn not in self._undone and turn.sources[-1].fact.by == "undo":
            again = tr("Undo the last undo…")
            menu.addAction(again).triggered.connect(lambda: self.undo_change_sources(turn.sources[-1:], again))
        words = tr("Undo turn {number}…", number=turn.turn_numbers)
        if turn not in self._undone:
            menu.addAction(words).triggered.connect(lambda: self.undo_change_sources(turn.sources, words))
        if len(later) > 1:
            since = tr("Undo everything since turn {number}…", number=turn.number)
            all_of_it = [source for each in later for source in each.sources]
            menu.addAction(since).triggered.connect(lambda: self.undo_change_sources(all_of_it, since))
        menu.popup(self.undo_button.mapToGlobal(self.undo_button.rect().bottomLeft()))

    def _undo_since_turn(self, turn: TurnOfChanges) -> None:
        """Everything as it was before a turn; what the user changed since is among it, and the question says so."""
        if self._changes is not None:
            title = tr(
                "Restore everything to its state before turn {number} (your own changes are undone too)",
                number=turn.number,
            )
            work = self._changes.changes_since_checkpoint(turn.first_checkpoint, folders=True)
            sources = (source for each in self._turns if each.seq >= turn.seq for source in each.sources)
            undoes = undone_facts(sources, self._conversation)
            self._run_for_page(work, then=lambda files: self._plan_and_confirm_undo(files, undoes, title))

    def _turn_of_selected_row(self) -> TurnOfChanges | None:
        entry = self.files.current_changes_row
        if entry is not None and entry.turn is not None:
            return entry.turn
        return self._turns[-1] if self._turns else None

    def undo_change_sources(self, sources: Sequence[ChangeSource], title: str) -> None:
        """Some steps: all they changed, its folders too; after a question."""
        if self._changes is None:
            return

        def confirm_undo_of_found(left: tuple[Sequence[FileChange], bool]) -> None:
            self._plan_and_confirm_undo(left[0], (), title.removesuffix("…"), redo=left[1])

        self._run_for_page(self._changes_left_to_undo(self._changes, sources), then=confirm_undo_of_found)

    async def _changes_left_to_undo(
        self, changes: FileChangesPort, sources: Sequence[ChangeSource]
    ) -> tuple[Sequence[FileChange], bool]:
        """What remains to be undone of these steps. If all of it is undone already, return the last
        undo instead: undoing that is a redo.
        """
        left = await changes.changes_with_folders(sources)
        undone = [source for source in sources if source.fact.by == "undo"]
        return (left, False) if left or not undone else (await changes.changes_with_folders(undone[-1:]), True)

    def _plan_and_confirm_undo(
        self, files: Sequence[FileChange], undoes: Sequence[int] = (), title: str = "", *, redo: bool = False
    ) -> None:
        changes = self._changes
        if changes is None or not files:
            return

        def show_undo_dialog(plan: Sequence[PlannedUndo]) -> None:
            compare = partial(self._compare_three_versions, redo=redo)
            dialog = UndoChangesDialog(self._theme, title or tr("Undo"), files, plan, compare, self, redo=redo)
            dialog.accepted.connect(lambda: self._undo_confirmed(files, dialog.choices_by_path, undoes))
            dialog.open()

        self._run_for_page(changes.plan_undo(files), then=show_undo_dialog)

    def _undo_confirmed(self, files: Sequence[FileChange], choices: dict[str, str], undoes: Sequence[int]) -> None:
        if self._changes is not None:
            work = self._changes.undo_file_changes(
                files, conversation=self._conversation, choices=choices, undoes=undoes
            )
            self._run_for_page(work, then=self._report_undone)

    def _compare_three_versions(self, planned: PlannedUndo, *, redo: bool) -> None:
        if self._changes is not None:
            place = planned.path.partition("/")[2]
            self._run_for_page(
                self._changes.three_versions_of_file(planned),
                then=lambda versions: ThreeVersionsDialog(self._theme, place, versions, self, redo=redo).open(),
            )

    def _report_undone_hunk(self, undone: UndoResultPort) -> None:
        if not undone.restored or undone.paths_left_alone:
            self._report_undone(undone)
        else:
            self.notice_wanted.emit(tr("The change was undone. The rest of the file stays as it is."))
            self.reload_changes()

    def _report_undone(self, undone: UndoResultPort) -> None:
        back = len(undone.restored)
        lines = [
            format_count(back, "{n} file was restored.", "{n} files were restored.")
            if back
            else tr("No files were restored.")
        ]
        lines += [
            tr("{place} was not changed: {why}.", place=place, why=why.rstrip("."))
            for place, why in undone.paths_left_alone[:6]
        ]
        self.notice_wanted.emit("\n".join(lines))
        self.reload_changes()

    def _comment_line_to_agent(self, line: int, text: str, words: str) -> None:
        if self._shown is not None:
            self.agent_message_written.emit(format_line_comment(self._shown.place, line, text, words))

    def _open_file_or_folder(self) -> None:
        """The file, or its folder where opening it might run it."""
        if self._changes is None or self._shown is None:
            return
        path, item = self._changes.path_on_disk(self._shown), self._shown.change.after
        runs = path.suffix.lower() in EXECUTABLE_SUFFIXES or (item is not None and bool(item.mode & 0o111))
        open_in_desktop_program(path.parent if runs else path)

    def _show_commit_dialog(self) -> None:
        changes = self._changes
        files = list({file.path_of_change: file for file in self._files}.values())
        if changes is None or not files:
            return
        if not self._has_git:
            self._set_up_git(changes)
            return
        dialog = CommitDialog(self._theme, files, self)
        unused, place = self._unused_messages, self._conversation
        dialog.message.setPlainText(unused.get(place, ""))
        dialog.message.textChanged.connect(lambda: unused.update({place: dialog.message.toPlainText()}))

        def request_commit_message() -> None:
            self._doing.run_in_background(
                self._propose_commit_message(changes, dialog.checked_files),
                then=dialog.show_proposal,
                owner=dialog,
                failed=lambda error: self._report_no_proposal(dialog, error),
            )

        def commit_checked_files() -> None:
            work = changes.git_repository.commit_files(
                [file.path_of_change for file in dialog.checked_files], dialog.message.toPlainText()
            )
            self._run_for_page(work, then=show_answer)

        def show_answer(answer: str) -> None:
            unused.pop(place, None)
            self.notice_wanted.emit(answer)

        dialog.proposal_wanted.connect(request_commit_message)
        dialog.accepted.connect(commit_checked_files)
        dialog.open()

    async def _propose_commit_message(self, changes: FileChangesPort, files: Sequence[FileChange]) -> str:
        return await changes.git_repository.propose_commit_message(await changes.build_git_patch(files))

    def _report_no_proposal(self, dialog: CommitDialog, error: HelixError) -> None:
        dialog.proposal_failed()
        self.notice_wanted.emit(str(error))

    def _run_for_page(self, work: Coroutine[Any, Any, Any], *, then: Any = None) -> None:
        self._doing.run_in_background(work, then=then, owner=self)


def _build_hunks_and_sheet(before: bytes, after: bytes, *, columns: bool) -> tuple[Sequence[Hunk], DifferenceSheet]:
    found = find_hunks(before, after) if not binary(before, after) else ()
    return found, build_difference_sheet(build_hunk_rows(found, columns=columns), columns=columns)


def _build_group_rows(words: str, files: Sequence[FileChange], turn: TurnOfChanges | None) -> list[ChangesListRow]:
    if not files:
        return []
    heading = f"{words} · {format_count(len(files), '{n} file', '{n} files')}"
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return [
        ChangesListRow(heading=heading, turn=turn, added=added, removed=removed),
        *group_rows_by_folder(files, turn),
    ]


def _turn_heading(turn: TurnOfChanges) -> str:
    return tr("Turn {number}", number=turn.turn_numbers)


def _since_turn_heading(turn: TurnOfChanges) -> str:
    return tr("Since turn {number} began", number=turn.number)
