"""The replay lab: what other policies would have made of conversations, side by side, and one of them taken over."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.errors import HelixError
from helix_desktop.gui.asking import ask_files
from helix_desktop.gui.doing import Doing, Work
from helix_desktop.gui.meter import short
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.words import tr

WINDOWS = (32_000, 64_000, 128_000, 200_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be played, and through what."""

    conversations: Sequence[str]
    files: Sequence[Path]
    policies: Sequence[str]
    window: int


@dataclass(frozen=True, slots=True)
class Played:
    """One policy over everything. `billed` in tokens at the input price; `plain_…`: without any folding. `plots`: a page of them."""

    policy: str
    steps: int
    sent: int
    billed: int
    plain_sent: int
    plain_billed: int
    peak: float
    kept: float
    folds: Mapping[str, int]
    plots: Path


class Play(Protocol):
    """`playing.play`."""

    def __call__(
        self, bench: Workbench, wanted: Wanted, report: Callable[[int, int], None]
    ) -> Coroutine[Any, Any, Sequence[Played]]: ...


class Lab(QDialog):
    """`policies`: names with the words of the top bar. `took` is called when the workspace has another policy."""

    def __init__(
        self,
        bench: Workbench,
        policies: Sequence[tuple[str, str]],
        play: Play,
        doing: Doing,
        took: Callable[[str], object],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._bench, self._play, self._doing, self._took = bench, play, doing, took
        self._names = dict(policies)
        self._working: Work | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Replay lab"))
        self.resize(820, 600)
        self.list = self._conversations()
        self.checks = {name: QCheckBox(words, self) for name, words in policies}
        self.window_ = QComboBox(self)
        self.run_ = QPushButton(tr("Run"), self)
        self._bar = QProgressBar(self)
        self._said = QLabel(self)
        self._results = QGridLayout()
        self._lay_out()

    def _conversations(self) -> QListWidget:
        found = QListWidget(self)
        found.setAccessibleName(tr("Conversations to play"))
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
            tr(
                "Plays conversations through the context engine with other policies. Nothing is sent anywhere: a stand-in "
                "writes the summaries."
            ),
            self,
        )
        words.setProperty("look", "muted")
        words.setWordWrap(True)
        files = QPushButton(tr("Add recorded sessions…"), self)
        files.setProperty("look", "link")
        files.clicked.connect(self._add_files)
        for window in WINDOWS:
            self.window_.addItem(tr("Window of {n} tokens", n=short(window)), window)
        self.window_.setCurrentIndex(WINDOWS.index(128_000))
        self.window_.setAccessibleName(tr("Window"))
        for check in self.checks.values():
            check.setChecked(True)
        self._bar.setTextVisible(False)
        self._bar.hide()
        self._said.setProperty("look", "small")
        self._said.setWordWrap(True)
        self._said.setTextFormat(Qt.TextFormat.PlainText)
        self.run_.setProperty("look", "primary")
        self.run_.clicked.connect(self._run)
        choices = QHBoxLayout()
        for widget in (*self.checks.values(), self.window_, self.run_):
            choices.addWidget(widget)
        self._results.setHorizontalSpacing(18)
        column = QVBoxLayout(self)
        for each in (words, self.list, files):
            column.addWidget(each)
        column.addLayout(choices)
        column.addWidget(self._bar)
        column.addWidget(self._said)
        column.addLayout(self._results)
        column.addStretch(1)

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
            self._said.setText(tr("Choose a conversation and a policy."))
            return
        self.run_.setText(tr("Stop"))
        self._bar.setRange(0, 0)
        self._bar.show()
        self._said.setText(tr("Playing…"))
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
        self._ended(str(error))

    def _ended(self, words: str) -> None:
        self._working = None
        self._bar.hide()
        self._said.setText(words)
        self.run_.setText(tr("Run"))

    def done(self, result: int) -> None:
        if self._working is not None:
            self._working.cancel()
        super().done(result)

    # --- what came of it

    def _show(self, played: Sequence[Played]) -> None:
        self._ended("")
        while (item := self._results.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        heads = (tr("Policy"), tr("Sent"), tr("Cost, of sending everything"), tr("Peak"), tr("Kept"), tr("Folds"), "")
        for column, head in enumerate(heads):
            self._results.addWidget(self._label(head, "faint"), 0, column)
        for line, each in enumerate(played, 1):
            self._line(line, each)
        if played:
            plots = QPushButton(tr("Show the plots"), self)
            plots.setProperty("look", "link")
            plots.clicked.connect(lambda _checked=False: _open(played[0].plots))
            self._results.addWidget(plots, len(played) + 1, 0)

    def _line(self, line: int, played: Played) -> None:
        share = played.billed / played.plain_billed if played.plain_billed else 1.0
        bar = QProgressBar(self)
        bar.setRange(0, 1000)
        bar.setValue(min(round(share * 1000), 1000))
        bar.setTextVisible(False)
        bar.setToolTip(f"{share:.0%}")
        cost = QHBoxLayout()
        cost.addWidget(bar, 1)
        cost.addWidget(self._label(f"{share:.0%}", "small"))
        holder = QWidget(self)
        holder.setProperty("look", "plain")
        holder.setLayout(cost)
        folds = ", ".join(f"{number} {kind}" for kind, number in played.folds.items()) or tr("none")
        cells: tuple[QWidget, ...] = (
            self._label(self._names.get(played.policy, played.policy), ""),
            self._label(short(played.sent), "small"),
            holder,
            self._label(f"{played.peak:.0%}", "small"),
            self._label(f"{played.kept:.0%}", "small"),
            self._label(folds, "small"),
            self._take_button(played.policy),
        )
        for column, cell in enumerate(cells):
            self._results.addWidget(cell, line, column)

    def _take_button(self, policy: str) -> QPushButton:
        take = QPushButton(tr("Use this policy"), self)
        take.setAutoDefault(False)
        take.setAccessibleName(f"{tr('Use this policy')}: {self._names.get(policy, policy)}")
        take.clicked.connect(partial(self._take, policy))
        return take

    def _take(self, policy: str, _checked: bool = False) -> None:  # noqa: FBT001, FBT002 - a slot
        def taken(_done: None) -> None:
            self._said.setText(tr("{policy} is this workspace's policy now.", policy=self._names.get(policy, policy)))
            self._took(policy)

        work = self._bench.choose_policy(policy)
        self._doing.do(work, name="take a policy over", then=taken, owner=self, failed=self._failed)

    def _label(self, text: str, look: str) -> QLabel:
        label = QLabel(text, self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setProperty("look", look)
        return label


def _open(page: Path) -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(page)))
