"""The replay lab: what other policies would have made of conversations, side by side, and one of them taken over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QFrame,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing, Work
from helix_desktop.gui.chat.attachments import Flow
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.lab.port import Outcome, Play, Wanted
from helix_desktop.gui.lab.results import Results
from helix_desktop.gui.meter import short
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.questions import ask_files, ask_new_file
from helix_desktop.gui.save_text import save
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import tr

HEIGHT, LINES, LINES_BESIDE_RESULTS = 720, 6, 3
USUAL = 128_000
WINDOWS = (32_000, 64_000, 128_000, 200_000, 1_000_000)


class Lab(QDialog):
    """`policies`: names with the words of the top bar. `took` is called when the workspace has another policy."""

    def __init__(
        self,
        bench: Workbench,
        policies: Sequence[tuple[str, str]],
        play: Play,
        doing: Doing,
        took: Callable[[str], object],
        theme: Theme,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._bench, self._play, self._doing, self._took = bench, play, doing, took
        self._theme = theme
        self._names = dict(policies)
        self._working: Work | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Replay lab"))
        room = self.screen().availableGeometry().size() * 0.95
        self.resize(QSize(theme.px(840), theme.px(380)).boundedTo(room))
        self.list = self._conversations()
        self.checks = {name: QCheckBox(words, self) for name, words in policies}
        self.window_ = QComboBox(self)
        self.run_ = QPushButton(tr("Run"), self)
        self._bar = QProgressBar(self)
        self._said = QLabel(self)
        self.results: Results | None = None
        self._room = QScrollArea(self)
        self._lay_out()

    def _conversations(self) -> QListWidget:
        found = QListWidget(self)
        found.setAccessibleName(tr("Conversations to replay"))
        # the newest alone is chosen: all of a long workspace would play for minutes
        for row in self._bench.conversations():
            if not row.trashed and not row.parent:
                self._add(found, row.title or tr("New conversation"), row.id, chosen=not found.count())
        return found

    @staticmethod
    def _add(into: QListWidget, words: str, value: object, *, chosen: bool = True) -> None:
        item = QListWidgetItem(words, into)
        item.setData(Qt.ItemDataRole.UserRole, value)
        item.setCheckState(Qt.CheckState.Checked if chosen else Qt.CheckState.Unchecked)

    def _lay_out(self) -> None:
        words = QLabel(
            tr("Replays conversations with other policies. Nothing is sent anywhere: placeholder summaries are used."),
            self,
        )
        words.setProperty("look", "muted")
        words.setWordWrap(True)
        files = QPushButton(tr("Add recorded sessions…"), self)
        files.setProperty("look", "link")
        files.clicked.connect(self._add_files)
        own = self._own_window()
        for window in sorted({*WINDOWS, own}):
            self.window_.addItem(tr("{n}-token window", n=short(window)), window)
        self.window_.setCurrentIndex(self.window_.findData(own))
        self.window_.setAccessibleName(tr("Window"))
        for check in self.checks.values():
            check.setChecked(True)
        self._bar.setTextVisible(False)
        self._bar.hide()
        self._said.setProperty("look", "small")
        self._said.hide()
        self._said.setWordWrap(True)
        self._said.setTextFormat(Qt.TextFormat.PlainText)
        self.run_.setProperty("look", "primary")
        self.run_.clicked.connect(self._run)
        choices = Flow(gap=12)
        for widget in (*self.checks.values(), self.window_, self.run_):
            choices.addWidget(widget)
        self._show_lines(LINES)
        self._room.setWidgetResizable(True)
        self._room.setFrameShape(QFrame.Shape.NoFrame)
        self._room.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        for each in (words, self.list, files):
            column.addWidget(each)
        column.addLayout(choices)
        column.addWidget(self._bar)
        column.addWidget(self._said)
        column.addWidget(self._room, 1)
        column.addStretch(0)

    def _show_lines(self, most: int) -> None:
        """Whole lines, so that none is cut in half."""
        lines = min(max(self.list.count(), 1), most)
        self.list.setFixedHeight(lines * self.list.sizeHintForRow(0) + 2 * self.list.frameWidth() + 8)

    def _own_window(self) -> int:
        """That of the model the chosen conversation has; else the usual one."""
        rows = [row for row in self._bench.conversations() if not row.trashed and not row.parent and row.window]
        return rows[0].window if rows else USUAL

    def _say(self, words: str) -> None:
        self._said.setText(words)
        self._said.setVisible(bool(words))

    def _add_files(self) -> None:
        ask_files(
            self, tr("Recorded sessions"), lambda paths: [self._add(self.list, each.name, each) for each in paths]
        )

    # --- a run

    def _run(self) -> None:
        """Start, or stop what was started."""
        if self._working is not None:
            self._working.cancel()
            self._ended(tr("Stopped."))
            return
        wanted = self._wanted()
        if not (wanted.conversations or wanted.files) or not wanted.policies:
            self._say(tr("Choose a conversation and a policy."))
            return
        self.run_.setText(tr("Stop"))
        self._bar.setRange(0, 0)
        self._bar.show()
        self._say(tr("Replaying…"))
        self._working = self._doing.do(
            self._play(self._bench, wanted, self._report),
            name="replay", then=self._show, owner=self, failed=self._failed,
        )  # fmt: skip

    def _wanted(self) -> Wanted:
        items = [self.list.item(at) for at in range(self.list.count())]
        chosen = [item.data(Qt.ItemDataRole.UserRole) for item in items if item.checkState() is Qt.CheckState.Checked]
        return Wanted(
            [each for each in chosen if isinstance(each, str)],
            [each for each in chosen if isinstance(each, Path)],
            [name for name, check in self.checks.items() if check.isChecked()],
            int(self.window_.currentData()),
        )

    def _report(self, done: int, total: int) -> None:
        self._bar.setRange(0, total)
        self._bar.setValue(done)

    def _failed(self, error: HelixError) -> None:
        self._ended(said(str(error)))

    def _ended(self, words: str) -> None:
        self._working = None
        self._bar.hide()
        self._say(words)
        self.run_.setText(tr("Run"))

    def done(self, result: int) -> None:
        if self._working is not None:
            self._working.cancel()
        super().done(result)

    # --- what came of it

    def _show(self, outcome: Outcome) -> None:
        self._ended("")
        results = Results(outcome, self._names, self._theme, self._take, lambda: self._save(outcome.page), self)
        self._room.setWidget(results)
        self._room.show()
        self.results = results
        self._show_lines(LINES_BESIDE_RESULTS)
        self._grow(max(self.height(), self._theme.px(HEIGHT)))

    def _grow(self, height: int) -> None:
        """As far as the screen goes; what does not fit is scrolled to."""
        room, frame = self.screen().availableGeometry(), self.frameGeometry().height() - self.height()
        self.resize(self.width(), min(height, room.height() - frame))
        lowest = room.bottom() + 1 - self.height() - frame
        self.move(self.frameGeometry().left(), max(room.top(), min(self.frameGeometry().top(), lowest)))

    def _take(self, policy: str) -> None:
        def taken(_done: None) -> None:
            self._say(tr("This workspace now uses: {policy}.", policy=self._names.get(policy, policy)))
            self._took(policy)

        work = self._bench.choose_policy(policy)
        self._doing.do(work, name="take a policy over", then=taken, owner=self, failed=self._failed)

    def _save(self, page: str) -> None:
        def told(file: Path) -> None:
            self._say(tr("Saved as {file}.", file=file.name))

        def write(file: Path) -> None:
            self._doing.do(
                save(file, lambda: page),
                name="save a replay",
                then=lambda _done: told(file),
                owner=self,
                failed=self._failed,
            )

        ask_new_file(self, tr("Save replay as web page"), tr("Replay") + ".html", write)
