"""What came of a replay: figures and a button for each policy, bars beside each other, and tokens over steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from PySide6.QtWidgets import QComboBox, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.lab.bar_chart import Bars
from helix_desktop.gui.lab.curves import Lines, Sample
from helix_desktop.gui.lab.port import Outcome, Played
from helix_desktop.gui.meter import short
from helix_desktop.gui.shared.folds import kind_words
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import percent, tr


class Results(QWidget):
    """Made for one outcome. `take` is called with a policy, `save` with nothing."""

    def __init__(
        self,
        outcome: Outcome,
        names: Mapping[str, str],
        theme: Theme,
        take: Callable[[str], object],
        save: Callable[[], object],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._outcome, self._names, self._theme, self._take = outcome, names, theme, take
        self.bars = Bars(names, theme, self)
        self.bars.show_played(outcome.played)
        self.lines = Lines(names, theme, self)
        self.which = self._conversations()
        self.save = QPushButton(tr("Save as web page…"), self)
        self.save.setProperty("look", "link")
        self.save.setAutoDefault(False)
        self.save.clicked.connect(lambda _checked=False: save())
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self._table())
        about = self._label(
            tr(
                "“Still in view”: of the identifiers that are used again later, the share that was still in view as plain text. Identifiers in markers are not counted. Without folds, whatever no longer fits in the window is lost."
            ),
            "small",
        )
        about.setWordWrap(True)
        column.addWidget(about)
        column.addSpacing(8)
        column.addWidget(self.bars)
        column.addSpacing(8)
        column.addLayout(self._head())
        column.addWidget(self.lines)
        column.addLayout(self._legend())
        self._show(0)

    # --- figures

    def _table(self) -> QGridLayout:
        table = QGridLayout()
        table.setHorizontalSpacing(18)
        table.setVerticalSpacing(0)
        heads = (tr("Policy"), tr("Sent"), tr("Still in view"), tr("Folds"), "")
        for column, head in enumerate(heads):
            table.addWidget(self._label(head, "faint"), 0, column)
        for line, each in enumerate(self._outcome.played, 1):
            for column, cell in enumerate(self._cells(each)):
                table.addWidget(cell, line, column)
        table.setColumnStretch(3, 1)
        return table

    def _cells(self, played: Played) -> Sequence[QWidget]:
        folds = " · ".join(f"{kind_words(FoldKind(kind))} {number}" for kind, number in played.folds.items())
        return (
            self._label(self._names.get(played.policy, played.policy), ""),
            self._label(short(played.sent), "small"),
            self._label(percent(played.kept), "small"),
            self._label(folds or tr("none"), "small"),
            self._take_button(played.policy),
        )

    def _take_button(self, policy: str) -> QPushButton:
        take = QPushButton(tr("Use this policy"), self)
        take.setProperty("look", "link")
        take.setAutoDefault(False)
        take.setAccessibleName(f"{tr('Use this policy')}: {self._names.get(policy, policy)}")
        take.clicked.connect(partial(self._take_it, policy))
        return take

    def _take_it(self, policy: str, _checked: bool = False) -> None:  # noqa: FBT001, FBT002 - a slot
        self._take(policy)

    # --- the plot

    def _conversations(self) -> QComboBox:
        which = QComboBox(self)
        which.setAccessibleName(tr("Conversation shown in the chart"))
        which.addItems([course.name for course in self._outcome.played[0].courses])
        which.setVisible(which.count() > 1)
        which.currentIndexChanged.connect(self._show)
        return which

    def _head(self) -> QHBoxLayout:
        head = QHBoxLayout()
        head.addWidget(self._label(tr("Tokens by step"), "heading"))
        head.addWidget(self.which)
        head.addStretch(1)
        head.addWidget(self.save)
        return head

    def _legend(self) -> QHBoxLayout:
        legend = QHBoxLayout()
        for each in self._outcome.played:
            legend.addWidget(Sample(each.policy, self._theme, self))
            legend.addWidget(self._label(self._names.get(each.policy, each.policy), "small"))
            legend.addSpacing(12)
        legend.addStretch(1)
        legend.addWidget(self._label(tr("● a fold"), "small"))
        return legend

    def _show(self, number: int) -> None:
        if number >= 0:
            courses = {each.policy: each.courses[number] for each in self._outcome.played if each.courses}
            self.lines.show_courses(courses, self._outcome.window)

    def _label(self, text: str, look: str) -> QLabel:
        return plain_label(text, look, self, wraps=False)
