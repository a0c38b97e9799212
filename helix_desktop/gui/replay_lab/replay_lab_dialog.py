"""The dialog of the replay lab: what the open conversation, or the last ones, would have cost with
other policies. The user can adopt one of them.

For other windows and for recorded sessions there is `helix-desktop replay`.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QProgressBar, QPushButton, QWidget

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner, CancellableWork
from helix_desktop.gui.layouts import build_column, build_row
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome, RunReplay
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shared.figure_formats import format_dollars
from helix_desktop.gui.shared.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.translation import format_percent, tr
from helix_desktop.gui.workbench_types import Workbench


class ReplayLabDialog(TransientDialog):
    """Starts replaying when it is created. `policies` maps names to titles."""

    policy_adopted = Signal(str)

    def __init__(
        self,
        bench: Workbench,
        conversations: Sequence[ConversationListRow],
        policies: Sequence[tuple[str, str]],
        play: RunReplay,
        runner: BackgroundRunner,
        parent: QWidget,
    ) -> None:
        alone = len(conversations) == 1
        title = tr("What would other settings have cost here?") if alone else tr("What each preset would have cost")
        super().__init__(title, parent, 760, 320)
        self._bench, self._runner, self._count = bench, runner, len(conversations)
        self._paid, self._dollars_per_token = sum(row.cost for row in conversations), 0.0
        self._names, self._window = dict(policies), conversations[0].window
        self.answer = build_plain_label(tr("Replaying…"), "title", self)
        self._bar = QProgressBar(self, textVisible=False)
        self._bar.setRange(0, 0)
        self._status_label = build_plain_label(
            tr("Replays conversations with other presets. Nothing is sent anywhere: placeholder summaries are used."),
            "muted",
            self,
        )
        self._table = QGridLayout()
        self._adopting: dict[str, QPushButton] = {}
        close = build_row(1, build_push_button(tr("Close"), self, self.reject))
        column = (self.answer, self._bar, self._table, self._status_label, 1, close)
        build_column(*column, owner=self, margins=20, spacing=12)
        self._working: CancellableWork = runner.run_in_background(
            play(bench, [one.id for one in conversations], list(self._names), self._window, self._show_replay_progress),
            then=self._show_outcomes,
            owner=self,
            failed=self._show_replay_error,
        )

    def done(self, result: int) -> None:
        self._working.cancel()
        super().done(result)

    def _show_replay_progress(self, done: int, total: int) -> None:
        self._bar.setRange(0, total)
        self._bar.setValue(done)

    def _show_replay_error(self, error: HelixError) -> None:
        self._bar.hide()
        self.answer.setText(translate_sentences(str(error)))

    def _show_outcomes(self, outcomes: Sequence[PolicyOutcome]) -> None:
        self._bar.hide()
        # What was really paid is the cost of the preset in use. The meter and the timeline show the same amount.
        in_use = next((one.billed for one in outcomes if one.policy == self._bench.policy_name), 0)
        self._dollars_per_token = self._paid / in_use if in_use else 0.0
        self.answer.setText(self._describe_cheapest(min(outcomes, key=self._rank_by_shown_cost)))
        for column, head in enumerate((tr("Preset"), tr("Cost"), tr("Peak"), tr("In view"), "")):
            self._table.addWidget(build_plain_label(head, "faint", self, wraps=False), 0, column)
        for line, outcome in enumerate(outcomes, 1):
            for column, cell in enumerate(self._build_policy_cells(outcome)):
                self._table.addWidget(cell, line, column)
        self._table.setColumnStretch(4, 1)

    def _rank_by_shown_cost(self, outcome: PolicyOutcome) -> tuple[int, bool]:
        """Ranks by cost. Of presets with equal cost, the one in use comes first: a change would gain nothing."""
        return round(outcome.cost_share * 100), outcome.policy != self._bench.policy_name

    def _describe_cheapest(self, outcome: PolicyOutcome) -> str:
        cost, peak = map(format_percent, (outcome.cost_share, outcome.peak))
        name, count = self._names[outcome.policy], str(self._count)
        shown = {"name": name, "cost": cost, "peak": peak, "n": count}
        if self._count > 1:
            return tr("In your last {n} conversations, {name} would have been the cheapest, at {cost} of the cost of sending everything. The last column shows what share of the text that was needed again was still in the context.", **shown)  # fmt: skip
        if outcome.policy == self._bench.policy_name:
            return tr("No other preset would have cost less here: {name} cost {cost} of what sending everything would have cost.", **shown)  # fmt: skip
        return tr("{name} would have been the cheapest here, at {cost} of the cost of sending everything. The context window would have been at most {peak} full.", **shown)  # fmt: skip

    def _build_policy_cells(self, outcome: PolicyOutcome) -> Sequence[QWidget]:
        name = self._names[outcome.policy]
        share, *others = map(format_percent, (outcome.cost_share, outcome.peak, outcome.in_view))
        dollars = outcome.billed * self._dollars_per_token
        words = (name, f"{format_dollars(dollars)} · {share}" if dollars else share, *others)
        act, spoken = partial(self._adopt_policy, outcome.policy), f"{tr('Use this preset')}: {name}"
        adopt = self._adopting[outcome.policy] = build_push_button("", self, act, "link", name=spoken)
        self._mark_policy_in_use()
        return (*(build_plain_label(each, "small", self, wraps=False) for each in words), adopt)

    def _mark_policy_in_use(self) -> None:
        for policy, adopt in self._adopting.items():
            adopt.setEnabled(policy != self._bench.policy_name)
            adopt.setText(tr("Use this preset") if adopt.isEnabled() else tr("in use"))

    def _adopt_policy(self, policy: str) -> None:
        def report_adopted_policy(_done: None) -> None:
            self._mark_policy_in_use()
            self._status_label.setText(tr("This workspace now uses: {policy}.", policy=self._names[policy]))
            self.policy_adopted.emit(policy)

        work = self._bench.choose_context_policy(policy)
        self._runner.run_in_background(work, then=report_adopted_policy, owner=self, failed=self._show_replay_error)
