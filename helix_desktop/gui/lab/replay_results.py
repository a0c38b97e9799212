"""The results of a replay: the answer in a sentence, figures and a button for each policy, and tokens by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from PySide6.QtWidgets import QComboBox, QGridLayout, QHBoxLayout, QLabel, QPushButton, QWidget

from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.lab.policy_curves import PolicyCurves, PolicyPenSample
from helix_desktop.gui.lab.replay_lab_port import PolicyOutcome, ReplayOutcome
from helix_desktop.gui.layouts import build_column, build_row
from helix_desktop.gui.shared.fold_descriptions import describe_fold_kind
from helix_desktop.gui.shared.plain_widgets import build_plain_label, build_push_button
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_percent, tr


class ReplayResultsPanel(QWidget):
    """Shows one outcome. `take` is called with the policy to adopt; `save` has no arguments."""

    def __init__(
        self,
        outcome: ReplayOutcome,
        names: Mapping[str, str],
        theme: Theme,
        take: Callable[[str], object],
        save: Callable[[], object],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._outcome, self._names, self._theme, self._take = outcome, names, theme, take
        self.lines = PolicyCurves(names, theme, self)
        self.which = self._build_conversation_choice()
        self.save = build_push_button(tr("Save as web page…"), self, save, "link")
        self.answer = build_plain_label(self._answer_in_words(), "title", self)
        about = self._build_results_label(
            tr(
                "“Still in view”: of the identifiers that are used again later, the share that was still in view as plain text. Identifiers in markers are not counted. Without folds, whatever no longer fits in the window is lost."
            ),
            "small",
        )
        about.setWordWrap(True)
        column = build_column(self.answer, self._build_results_table(), about, owner=self, margins=0)
        column.addSpacing(8)
        column.addLayout(self._build_plot_header())
        column.addWidget(self.lines)
        column.addLayout(self._build_plot_legend())
        self._plot_conversation(0)

    def _answer_in_words(self) -> str:
        cheapest = min(self._outcome.policy_outcomes, key=lambda played: played.cost_share)
        return tr(
            "{name} would have cost the least here: {cost} of sending everything, with the window at most {peak} full.",
            name=self._names.get(cheapest.policy, cheapest.policy),
            cost=format_percent(cheapest.cost_share),
            peak=format_percent(cheapest.peak),
        )

    def _build_results_table(self) -> QGridLayout:
        table = QGridLayout()
        table.setHorizontalSpacing(18)
        table.setVerticalSpacing(0)
        heads = (tr("Policy"), tr("Cost"), tr("Peak"), tr("Sent"), tr("Still in view"), tr("Folds"), "")
        for column, head in enumerate(heads):
            table.addWidget(self._build_results_label(head, "faint"), 0, column)
        for line, each in enumerate(self._outcome.policy_outcomes, 1):
            for column, cell in enumerate(self._build_policy_cells(each)):
                table.addWidget(cell, line, column)
        table.setColumnStretch(5, 1)
        return table

    def _build_policy_cells(self, played: PolicyOutcome) -> Sequence[QWidget]:
        folds = " · ".join(f"{describe_fold_kind(FoldKind(kind))} {number}" for kind, number in played.folds.items())
        return (
            self._build_results_label(self._names.get(played.policy, played.policy), ""),
            self._build_results_label(format_percent(played.cost_share), "small"),
            self._build_results_label(format_percent(played.peak), "small"),
            self._build_results_label(format_token_count(played.sent), "small"),
            self._build_results_label(format_percent(played.kept_share), "small"),
            self._build_results_label(folds or tr("none"), "small"),
            self._build_adopt_button(played.policy),
        )

    def _build_adopt_button(self, policy: str) -> QPushButton:
        take = build_push_button(tr("Use this policy"), self, look="link")
        take.setAccessibleName(f"{tr('Use this policy')}: {self._names.get(policy, policy)}")
        take.clicked.connect(partial(self._on_adopt_clicked, policy))
        return take

    def _on_adopt_clicked(self, policy: str, _checked: bool = False) -> None:  # noqa: FBT001, FBT002 - a slot
        self._take(policy)

    def _build_conversation_choice(self) -> QComboBox:
        which = QComboBox(self)
        which.setAccessibleName(tr("Conversation shown in the chart"))
        which.addItems([course.name for course in self._outcome.policy_outcomes[0].conversation_replays])
        which.setVisible(which.count() > 1)
        which.currentIndexChanged.connect(self._plot_conversation)
        return which

    def _build_plot_header(self) -> QHBoxLayout:
        return build_row(self._build_results_label(tr("Tokens by step"), "heading"), self.which, 1, self.save)

    def _build_plot_legend(self) -> QHBoxLayout:
        legend = QHBoxLayout()
        for each in self._outcome.policy_outcomes:
            legend.addWidget(PolicyPenSample(each.policy, self._theme, self))
            legend.addWidget(self._build_results_label(self._names.get(each.policy, each.policy), "small"))
            legend.addSpacing(12)
        legend.addStretch(1)
        legend.addWidget(self._build_results_label(tr("● a fold"), "small"))
        return legend

    def _plot_conversation(self, number: int) -> None:
        if number >= 0:
            courses = {
                each.policy: each.conversation_replays[number]
                for each in self._outcome.policy_outcomes
                if each.conversation_replays
            }
            self.lines.plot_conversation_replays(courses, self._outcome.window)

    def _build_results_label(self, text: str, look: str) -> QLabel:
        return build_plain_label(text, look, self, wraps=False)
