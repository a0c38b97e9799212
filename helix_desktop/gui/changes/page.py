"""The page of changes: what each turn did to files, and keeping it, taking it back, telling the agent about it, committing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QSizePolicy, QSplitter, QVBoxLayout, QWidget

from helix_desktop.engine.changes.hunks import Hunk, binary, hunks
from helix_desktop.engine.changes.story import (
    FileChange,
    Planned,
    Source,
    TurnOfChanges,
    comment,
    own,
    undone,
    with_undos,
)
from helix_desktop.engine.events import Event, FactAppended
from helix_desktop.engine.facts import ChangeKept, FilesChanged
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.changes.body import FileBody
from helix_desktop.gui.changes.commit import CommitDialog
from helix_desktop.gui.changes.cover import CoverDialog
from helix_desktop.gui.changes.files import Entry, FileList, by_folder
from helix_desktop.gui.changes.taking_back import TakingBack, ThreeVersions
from helix_desktop.gui.changes_port import Changes, Progress, Undone
from helix_desktop.gui.engine_sentences import in_a_row, said
from helix_desktop.gui.links import open_file
from helix_desktop.gui.questions import ask_text
from helix_desktop.gui.shared.difference_rows import Sheet, rows, sheet
from helix_desktop.gui.shared.elided import ElidedLabel
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.shared.plain import push_button
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.words import count, numeral, tr

WIDTH, LEAST, NOTE = 268, 168, 90  # pixels: of the files, at least, and of the sentence beside the buttons
MOST_MOMENTS, MOST_WORDS = 20, 90  # checkpoints in the menu, and letters of each
MOST_STEPS = 8  # of a turn, that can be undone one by one
ARROW = " ▾"
Looked = tuple[FileChange, tuple[bytes, bytes], Sequence[Hunk], Sheet, frozenset[str]]
RUNS = (".desktop", ".sh", ".bash", ".command", ".app", ".bat", ".cmd", ".exe", ".jar")


class ChangesPage(QWidget):
    """`wanted` is for the window, as on every page; `said` carries a message for the agent, `told` one for the user."""

    wanted = Signal(object)
    said = Signal(str)
    told = Signal(str)

    def __init__(self, theme: Theme, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._changes: Changes | None = None
        self._conversation = ""
        self._turns: Sequence[TurnOfChanges] = ()
        self._undone: list[TurnOfChanges] = []
        self._files: list[FileChange] = []
        self._scope, self._revision, self._since = "turns", "", 0
        self._fresh = False
        self._wanted = (0, "")  # the fact whose turn is to be shown when it is known, and a file
        self._shown: FileChange | None = None
        self.files = FileList(theme, self)
        self.body = FileBody(theme, self)
        self.scope, self.columns = (
            push_button(tr("Each turn") + ARROW, self, look="pill"),
            push_button(tr("Unified") + ARROW, self, look="pill"),
        )
        self.cover_button = push_button(tr("Choose what checkpoints cover…"), self, look="pill")
        self.cover_button.hide()
        self._leave: Callable[[], None] = lambda: None
        self._note = ElidedLabel(self, least=theme.px(NOTE))
        set_look(self._note, "muted")
        self.undo_button, self.commit_button = (
            push_button(tr("Undo") + ARROW, self, look="pill"),
            push_button(tr("Commit…"), self, look="primary"),
        )
        self._lay(theme)
        self.files.opened.connect(self._open)
        self.scope.clicked.connect(self._choose_scope)
        self.columns.clicked.connect(self._choose_columns)
        self.undo_button.clicked.connect(self._choose_undo)
        self.cover_button.clicked.connect(self._ask_cover)
        self.commit_button.clicked.connect(self._commit)
        self.body.taken_back.connect(lambda: self._take_back([self._shown] if self._shown else []))
        self.body.kept.connect(lambda: self._keep(""))
        self.body.opened.connect(self._open_in_editor)
        self.body.view.take_back.connect(self._take_back_hunk)
        self.body.view.keep.connect(self._keep)
        self.body.view.commented.connect(self._say)

    def _lay(self, theme: Theme) -> None:
        bar = QWidget(self)
        for each in (bar, self.body):
            set_look(each, "page")
            each.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        row = QHBoxLayout(bar)
        theme.fit(self, row.setContentsMargins, 20, 10, 20, 10)
        theme.fit(self, bar.setFixedHeight, 53)
        row.setSpacing(8)
        for widget in (self.scope, self.columns, self._note, self.cover_button):
            row.addWidget(widget)
        row.addStretch(1)
        for button in (self.undo_button, self.commit_button):
            row.addWidget(button)
        for button in (self.scope, self.columns, self.cover_button, self.undo_button, self.commit_button):
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        rule = QFrame(self)
        set_look(rule, "rule")
        rule.setFixedHeight(1)
        split = QSplitter(Qt.Orientation.Horizontal, self)
        split.setHandleWidth(1)
        split.addWidget(self.files)
        split.addWidget(self.body)
        split.setStretchFactor(1, 1)
        split.setCollapsible(0, False)
        theme.fit(self, self.files.setMinimumWidth, LEAST)
        self._split: QSplitter | None = split
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(bar)
        column.addWidget(rule)
        column.addWidget(split, 1)

    # --- what is shown

    def open(self, changes: Changes | None, conversation: str) -> None:
        """The changes of a conversation; empty: of one that has not begun."""
        if changes is not self._changes:
            self._leave()
            self._leave = changes.watch(self._heard) if changes is not None else lambda: None
            if changes is not None:
                self._show_note(changes.progress)
        self._changes, self._conversation = changes, conversation
        self._turns, self._shown, self._fresh = (), None, False
        self.files.show_entries(())
        self.body.clear("")
        if self.isVisible():
            self.refresh()

    def hear(self, events: Sequence[Event]) -> None:
        """What happened in the conversation that is shown."""
        facts = (event.recorded.fact for event in events if isinstance(event, FactAppended))
        if any(isinstance(fact, FilesChanged | ChangeKept) for fact in facts):
            self._fresh = False
            if self.isVisible():
                self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._split is not None:  # for the first time
            files = min(self._theme.px(WIDTH), self.width() // 3)
            self._split.setSizes([files, self.width() - files])
            self._split = None
        if not self._fresh:
            self.refresh()

    def show_turn(self, seq: int, path: str = "") -> None:
        """The turn of a fact, from the chat, and a file that it changed."""
        if not self._turns:
            self._wanted = seq, path
            return
        turn = next((turn for turn in self._turns if turn.seq <= seq <= turn.end), None)
        rows = [row for row, entry in enumerate(self.files.files.items) if entry.turn is turn and entry.file]
        if turn is not None and rows:
            entries = self.files.files.items
            named = (row for row in rows if (file := entries[row].file) and f"/{path}".endswith(f"/{file.place}"))
            self.files.setCurrentIndex(self.files.files.index(next(named, rows[0])))

    def refresh(self) -> None:
        """Ask again for what there is."""
        self._fresh = True
        changes, conversation = self._changes, self._conversation
        if changes is None:
            self.body.clear(tr("No workspace is open."))
            return
        self._do(self._gathered(changes, conversation), name="list the changes", then=self._take)

    async def _gathered(
        self, changes: Changes, conversation: str
    ) -> tuple[Changes, str, Sequence[TurnOfChanges], list[Entry]]:
        turns = await changes.turns(conversation) if conversation else ()
        entries: list[Entry] = []
        match self._scope:
            case "revision":
                files = await changes.since_revision(self._revision)
                entries = _group(tr("Since {revision}", revision=self._revision), files, None)
            case "checkpoint" if (began := self._began(turns)) is not None:
                entries = _group(_moment(began), await changes.since(began.before), None)
            case "conversation":
                sources = [source for turn in turns for source in turn.sources]
                entries = _group(tr("The whole conversation"), await changes.files(sources), None)
            case _:
                for turn in reversed(turns):
                    files = await changes.files(turn.sources)
                    entries += _group(_turn_words(turn), files, turn)
        left = changes.not_covered()
        if left:
            entries.append(Entry(heading=tr("Not covered")))
            entries += [Entry(left=one) for one in left]
        return changes, conversation, turns, entries

    def _began(self, turns: Sequence[TurnOfChanges]) -> TurnOfChanges | None:
        """The turn before which the chosen checkpoint was taken."""
        return next((turn for turn in turns if turn.seq == self._since), None) if self._scope == "checkpoint" else None

    def _take(self, gathered: tuple[Changes, str, Sequence[TurnOfChanges], list[Entry]]) -> None:
        changes, conversation, turns, entries = gathered
        if changes is not self._changes or conversation != self._conversation:
            return
        self._turns, shown = turns, [entry.turn for entry in entries]
        gone = (turn for turn in turns if turn not in shown and len(own(turn.sources)) < len(turn.sources))
        self._undone = list(gone) if self._scope == "turns" else []
        self._files = [entry.file for entry in entries if entry.file is not None]
        wanted, self._shown = (self._shown.path if self._shown else ""), None
        self.files.show_entries(entries, wanted)
        if not self._files:
            redo = tr("The agent's changes here have been undone. You can redo them from the Undo menu.")
            self.body.clear(redo if self._undone else tr("The agent has not changed any files here."))
        self._show_note(changes.progress)
        if self._wanted[0] and self._turns:
            (seq, path), self._wanted = self._wanted, (0, "")
            self.show_turn(seq, path)
        self.undo_button.setEnabled(bool(self._turns))
        self.commit_button.setEnabled(bool(self._files))

    def _heard(self, progress: Progress) -> None:
        self._show_note(progress)
        if progress.state == "ready" and self.isVisible():  # what is not covered is known now
            self.refresh()

    def _show_note(self, progress: Progress) -> None:
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
        over = self._changes is not None and any(left.is_beyond_limits for left in self._changes.not_covered())
        if over:
            usual = in_a_row(usual, tr("Some files are beyond the limits and not covered; they are listed below."))
        self.cover_button.setVisible(over)
        first = tr(
            "First checkpoint: {files} files, {size}, {seconds} seconds.",
            files=numeral(progress.files),
            size=size(progress.bytes),
            seconds=numeral(progress.seconds, 1),
        )
        self._note.say(words.get(progress.state, usual), first if progress.state == "ready" and progress.files else "")

    def _ask_cover(self) -> None:
        """A folder over the limit: its largest folders, for the user to choose."""
        changes = self._changes
        if changes is None:
            return

        def chosen(leave_out: Sequence[str], all_of_it: bool) -> None:  # noqa: FBT001 -- as the dialog says it
            rules = [*changes.rules(), *leave_out] if leave_out else None
            self._do(changes.cover(all_of_it=all_of_it, leave_out=rules), name="cover a folder")

        dialog = CoverDialog(self._theme, self)
        dialog.chosen.connect(chosen)
        dialog.open()
        self._doing.do(changes.largest(), name="count the folders", then=dialog.show_folders, owner=dialog)

    def _open(self, entry: Entry) -> None:
        file, changes = entry.file, self._changes
        if file is None or changes is None:
            return
        self._shown = file

        def failed(error: HelixError) -> None:  # forgotten, or removed: no other file may stay in its place
            if file is self._shown:
                self.body.clear(said(str(error)))

        work = self._looked(changes, file)
        self._doing.do(work, name="show a change", then=self._show, owner=self, failed=failed)

    async def _looked(self, changes: Changes, file: FileChange) -> Looked:
        contents = await changes.contents(file)
        found, made = await asyncio.to_thread(_difference, *contents, columns=self.body.view.columns)
        kept = await changes.kept(self._conversation) if self._conversation else {}
        return file, contents, found, made, kept.get(file.path, frozenset())

    def _show(self, looked: Looked) -> None:
        if looked[0] is self._shown:
            self.body.show_file(*looked)

    # --- choosing

    def _choose_scope(self) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Each turn")).triggered.connect(lambda: self.show_scope("turns"))
        menu.addAction(tr("The whole conversation")).triggered.connect(lambda: self.show_scope("conversation"))
        since = menu.addMenu(tr("Since a checkpoint"))
        since.setEnabled(bool(self._turns))
        for turn in self._turns[: -MOST_MOMENTS - 1 : -1]:
            action = since.addAction(f"{_moment(turn)} · {turn.title}"[:MOST_WORDS].replace("&", "&&"))
            action.triggered.connect(lambda _=False, turn=turn: self.show_since(turn))
        menu.addAction(tr("Since a git revision…")).triggered.connect(self._ask_revision)
        menu.popup(self.scope.mapToGlobal(self.scope.rect().bottomLeft()))

    def show_scope(self, scope: str, revision: str = "") -> None:
        """turns, conversation or revision."""
        self._scope, self._revision = scope, revision
        words = {"turns": tr("Each turn"), "conversation": tr("The whole conversation")}
        self.scope.setText(words.get(scope, tr("Since {revision}", revision=revision)) + ARROW)
        self.refresh()

    def show_since(self, turn: TurnOfChanges) -> None:
        """Show all differences from the checkpoint before a turn, the user's own included."""
        self._scope, self._since = "checkpoint", turn.seq
        self.scope.setText(_moment(turn) + ARROW)
        self.refresh()

    def _ask_revision(self) -> None:
        ask_text(
            self, tr("Changes since"), tr("Revision"), "HEAD", lambda text: self.show_scope("revision", text.strip())
        )

    def _choose_columns(self) -> None:
        two = self.columns.text() == tr("Unified") + ARROW
        self.columns.setText((tr("Side by side") if two else tr("Unified")) + ARROW)
        self.body.view.show_columns(two=two)

    # --- doing

    def _keep(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None and self._conversation:
            work = self._changes.keep(self._conversation, self._shown.path, hunk)
            self._do(work, name="keep a change")

    def _take_back_hunk(self, hunk: str) -> None:
        if self._changes is not None and self._shown is not None:
            work = self._changes.take_back_hunks(self._shown, [hunk], conversation=self._conversation)
            self._do(work, name="take back a hunk", then=self._taken_back)

    def _choose_undo(self) -> None:
        """What can be undone of the turn of the file that is shown, or of the last one."""
        turn, changes = self._turn(), self._changes
        if turn is None or changes is None:
            return
        if (began := self._began(self._turns)) is not None:
            self._undo_since(began)
            return
        menu = partial(self._undo_menu, turn)
        self._do(self._steps_left(changes, turn), name="list what can be undone", then=menu)

    async def _steps_left(self, changes: Changes, turn: TurnOfChanges) -> Sequence[Source]:
        """The last steps of a turn that are not undone already; none where the turn has one alone."""
        steps = own(turn.sources)
        last = steps[-MOST_STEPS:] if len(steps) > 1 and turn not in self._undone else ()
        return [step for step in last if await changes.with_folders(with_undos(step, turn.sources))]

    def _undo_menu(self, turn: TurnOfChanges, steps: Sequence[Source]) -> None:
        """Turns that were undone again; each of the steps; the turn; all since it began."""
        later = [each for each in self._turns if each.seq >= turn.seq and each not in self._undone]
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for each in reversed(self._undone[-MOST_STEPS:]):
            redo = tr("Redo turn {number}…", number=each.numbers)
            menu.addAction(redo).triggered.connect(lambda _=False, e=each, w=redo: self.undo(e.sources, w))
        for step in reversed(steps):
            one = tr("Undo step {step} ({tool})…", step=step.step, tool=step.what or step.fact.by)
            menu.addAction(one).triggered.connect(lambda _=False, s=step, w=one: self.undo([s], w))
        if turn not in self._undone and turn.sources[-1].fact.by == "undo":
            again = tr("Undo the last undo…")
            menu.addAction(again).triggered.connect(lambda: self.undo(turn.sources[-1:], again))
        words = tr("Undo turn {number}…", number=turn.numbers)
        if turn not in self._undone:
            menu.addAction(words).triggered.connect(lambda: self.undo(turn.sources, words))
        if len(later) > 1:
            since = tr("Undo everything since turn {number}…", number=turn.number)
            all_of_it = [source for each in later for source in each.sources]
            menu.addAction(since).triggered.connect(lambda: self.undo(all_of_it, since))
        menu.popup(self.undo_button.mapToGlobal(self.undo_button.rect().bottomLeft()))

    def _undo_since(self, turn: TurnOfChanges) -> None:
        """Everything as it was before a turn; what the user changed since is among it, and the question says so."""
        if self._changes is not None:
            title = tr(
                "Restore everything to its state before turn {number} (your own changes are undone too)",
                number=turn.number,
            )
            work = self._changes.since(turn.before, folders=True)
            sources = (source for each in self._turns if each.seq >= turn.seq for source in each.sources)
            undoes = undone(sources, self._conversation)
            self._do(work, name="list what is undone", then=lambda files: self._take_back(files, undoes, title))

    def _turn(self) -> TurnOfChanges | None:
        entry = self.files.current
        if entry is not None and entry.turn is not None:
            return entry.turn
        return self._turns[-1] if self._turns else None

    def undo(self, sources: Sequence[Source], title: str) -> None:
        """Some steps: all they changed, its folders too; after a question."""
        if self._changes is None:
            return

        def found(left: tuple[Sequence[FileChange], bool]) -> None:
            self._take_back(left[0], (), title.removesuffix("…"), redo=left[1])

        self._do(self._to_undo(self._changes, sources), name="list what is undone", then=found)

    async def _to_undo(self, changes: Changes, sources: Sequence[Source]) -> tuple[Sequence[FileChange], bool]:
        """What is left of some steps; where all of it is undone already, the last undo: that is a redo."""
        left = await changes.with_folders(sources)
        undone = [source for source in sources if source.fact.by == "undo"]
        return (left, False) if left or not undone else (await changes.with_folders(undone[-1:]), True)

    def _take_back(
        self, files: Sequence[FileChange], undoes: Sequence[int] = (), title: str = "", *, redo: bool = False
    ) -> None:
        changes = self._changes
        if changes is None or not files:
            return

        def planned(plan: Sequence[Planned]) -> None:
            compare = partial(self._compare, redo=redo)
            dialog = TakingBack(self._theme, title or tr("Undo"), files, plan, compare, self, redo=redo)
            dialog.accepted.connect(lambda: self._really(files, dialog.choices, undoes))
            dialog.open()

        self._do(changes.plan(files), name="plan taking back", then=planned)

    def _really(self, files: Sequence[FileChange], choices: dict[str, str], undoes: Sequence[int]) -> None:
        if self._changes is not None:
            work = self._changes.take_back(files, conversation=self._conversation, choices=choices, undoes=undoes)
            self._do(work, name="take back changes", then=self._taken_back)

    def _compare(self, planned: Planned, *, redo: bool) -> None:
        if self._changes is not None:
            place = planned.path.partition("/")[2]
            self._do(
                self._changes.versions(planned),
                name="compare three versions",
                then=lambda versions: ThreeVersions(self._theme, place, versions, self, redo=redo).open(),
            )

    def _taken_back(self, undone: Undone) -> None:
        back = len(undone.restored)
        lines = [
            count(back, "{n} file was restored.", "{n} files were restored.") if back else tr("No files were restored.")
        ]
        lines += [
            tr("{place} was not changed: {why}.", place=place, why=why.rstrip(".")) for place, why in undone.left[:6]
        ]
        self.told.emit("\n".join(lines))
        self.refresh()

    def _say(self, line: int, text: str, words: str) -> None:
        if self._shown is not None:
            self.said.emit(comment(self._shown.place, line, text, words))

    def _open_in_editor(self) -> None:
        """The file, or its folder where opening it might run it."""
        if self._changes is None or self._shown is None:
            return
        path, item = self._changes.file_path(self._shown), self._shown.change.after
        runs = path.suffix.lower() in RUNS or (item is not None and bool(item.mode & 0o111))
        open_file(path.parent if runs else path)

    def _commit(self) -> None:
        changes = self._changes
        files = list({file.path: file for file in self._files}.values())
        if changes is None or not files:
            return
        dialog = CommitDialog(self._theme, files, self)

        def proposed() -> None:
            self._doing.do(
                self._proposal(changes, dialog.chosen),
                name="propose a message",
                then=dialog.show_proposal,
                owner=dialog,
                failed=lambda error: self._not_proposed(dialog, error),
            )

        def commit() -> None:
            work = changes.repository.commit([file.path for file in dialog.chosen], dialog.message.toPlainText())
            self._do(work, name="commit", then=self.told.emit)

        dialog.proposing.connect(proposed)
        dialog.accepted.connect(commit)
        dialog.open()

    async def _proposal(self, changes: Changes, files: Sequence[FileChange]) -> str:
        return await changes.repository.propose(await changes.patch(files))

    def _not_proposed(self, dialog: CommitDialog, error: HelixError) -> None:
        dialog.not_proposed()
        self.told.emit(str(error))

    def _do(self, work: Coroutine[Any, Any, Any], *, name: str, then: Any = None) -> None:
        self._doing.do(work, name=name, then=then, owner=self)


def _difference(before: bytes, after: bytes, *, columns: bool) -> tuple[Sequence[Hunk], Sheet]:
    found = hunks(before, after) if not binary(before, after) else ()
    return found, sheet(rows(found, columns=columns), columns=columns)


def _group(words: str, files: Sequence[FileChange], turn: TurnOfChanges | None) -> list[Entry]:
    if not files:
        return []
    heading = f"{words} · {count(len(files), '{n} file', '{n} files')}"
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return [
        Entry(heading=heading, turn=turn, added=added, removed=removed),
        *by_folder(files, turn),
    ]


def _turn_words(turn: TurnOfChanges) -> str:
    return tr("Turn {number}", number=turn.numbers)


def _moment(turn: TurnOfChanges) -> str:
    return tr("Since turn {number} began", number=turn.number)
