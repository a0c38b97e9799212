"""The dialog of the replay lab: what the open conversation, or the last ones, would have cost with
other policies. The user can adopt one of them.

For other windows and for recorded sessions there is `helix-desktop replay`.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QProgressBar, QPushButton, QWidget

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner, CancellableWork
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.model_setup_port import has_unknown_price
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome, RunReplay
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
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
        title = (
            tr("What would other settings have cost here?")
            if alone
            else tr("What each preset would have cost")
        )
        super().__init__(title, parent, 760, 320)
        self._bench, self._runner, self._count = bench, runner, len(conversations)
        self._paid, self._dollars_per_token = sum(row.cost for row in conversations), 0.0
        self._names, self._window = dict(policies), conversations[0].window
        self._lacks_price = any(
            has_unknown_price(model)
            for model in bench.models.model_facts()
            if model.role is ModelRole.MAIN
        )
        self.answer = build_plain_label(tr("Replaying…"), "title", self)
        self._bar = QProgressBar(self, textVisible=False)
        self._bar.setRange(0, 0)
        about = tr("This is a simulation with placeholder summaries: nothing is sent. Peak: the highest use of the context window. In view: of the text that was needed again, the share that was still in the context.")  # fmt: skip
        self._status_label = build_plain_label(about, "muted", self)
        self._table = QGridLayout()
        self._adopting: dict[str, QPushButton] = {}
        close = build_row(1, build_push_button(tr("Close"), self, self.reject))
        column = (self.answer, self._bar, self._table, self._status_label, 1, close)
        build_column(*column, owner=self, margins=20, spacing=12)
        self._working: CancellableWork = runner.run_in_background(
            play(
                bench,
                [one.id for one in conversations],
                list(self._names),
                self._window,
                self._show_replay_progress,
            ),
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
        # What was really paid is the cost of the preset in use. The meter and the
        # timeline show the same amount.
        of_preset = {one.policy: one for one in outcomes}
        self._baseline = in_use = of_preset.get(self._bench.policy_name, outcomes[-1])
        is_paid = in_use.billed > 0 and self._bench.policy_name in of_preset
        self._dollars_per_token = self._paid / in_use.billed if is_paid else 0.0
        sendable = [one for one in outcomes if one.peak <= 1] or outcomes
        # Of presets with equal cost, the one in use comes first: a change would gain nothing.
        cheapest = min(
            sendable, key=lambda one: (round(self._cost_share(one) * 100), one is not in_use)
        )
        self.answer.setText(self._describe_cheapest(cheapest))
        for column, head in enumerate((tr("Preset"), tr("Cost"), tr("Peak"), tr("In view"), "")):
            self._table.addWidget(build_plain_label(head, "faint", self, wraps=False), 0, column)
        for line, outcome in enumerate(outcomes, 1):
            for column, cell in enumerate(self._build_policy_cells(outcome)):
                self._table.addWidget(cell, line, column)
        self._table.setColumnStretch(4, 1)

    def _cost_share(self, outcome: PolicyOutcome) -> float:
        """Returns the cost as a share of what the preset in use cost."""
        return outcome.billed / self._baseline.billed if self._baseline.billed else 1.0

    def _describe_cheapest(self, outcome: PolicyOutcome) -> str:
        if self._lacks_price:
            # Without a price, less text is no saving that anybody could name.
            alone = tr("No price is known for the model in use, so costs cannot be compared. The table compares how much text would have been sent.")  # fmt: skip
            several = alone
        elif outcome is self._baseline:
            alone, several = tr("No other preset would have cost less here."), tr("In your last {n} conversations, no other preset would have cost less.", n=self._count)  # fmt: skip
        else:
            name, in_use = self._names[outcome.policy], self._names[self._baseline.policy]
            cost = format_percent(self._cost_share(outcome))
            shown = {"name": name, "in_use": in_use, "cost": cost}
            alone = tr(
                "“{name}” would have cost least here: {cost} of what “{in_use}” cost.",
                **shown,
            )
            several = tr("In your last {n} conversations, “{name}” would have cost least: {cost} of what “{in_use}” cost.", n=self._count, **shown)  # fmt: skip
        return several if self._count > 1 else alone

    def _build_policy_cells(self, outcome: PolicyOutcome) -> Sequence[QWidget]:
        name = self._names[outcome.policy]
        shares = self._cost_share(outcome), outcome.peak, outcome.in_view
        share, *others = map(format_percent, shares)
        dollars = outcome.billed * self._dollars_per_token
        cost = f"{format_dollars(dollars)} · {share}" if dollars else share
        words = (name, cost if outcome.peak <= 1 else tr("would not have fit"), *others)
        act, spoken = (
            partial(self._adopt_policy, outcome.policy),
            f"{tr('Use this preset')}: {name}",
        )
        adopt = self._adopting[outcome.policy] = build_push_button(
            "", self, act, "link", name=spoken
        )
        self._mark_policy_in_use()
        return (*(build_plain_label(each, "small", self, wraps=False) for each in words), adopt)

    def _mark_policy_in_use(self) -> None:
        for policy, adopt in self._adopting.items():
            adopt.setEnabled(policy != self._bench.policy_name)
            adopt.setText(tr("Use this preset") if adopt.isEnabled() else tr("in use"))

    def _adopt_policy(self, policy: str) -> None:
        def report_adopted_policy(_done: None) -> None:
            self._mark_policy_in_use()
            self._status_label.setText(
                tr("This workspace now uses: {policy}.", policy=self._names[policy])
            )
            self.policy_adopted.emit(policy)

        work = self._bench.choose_context_policy(policy)
        self._runner.run_in_background(
            work, then=report_adopted_policy, owner=self, failed=self._show_replay_error
        )
