"""The dialog of the replay lab: what the open conversation, or the last ones, would have cost with
other policies. The user can adopt one of them.

For other windows and for recorded sessions there is `helix-desktop replay`.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QProgressBar, QPushButton, QWidget

from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner, CancellableWork
from helix_desktop.gui.common.figure_formats import format_duration
from helix_desktop.gui.common.policy_names import describe_preset_plainly
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_combo_box,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
from helix_desktop.gui.replay_lab.model_costs import (
    SentRequests,
    collect_sent_requests,
    describe_cost_with_model,
)
from helix_desktop.gui.replay_lab.preset_costs import (
    ComparedBy,
    PresetCost,
    choose_comparison,
    compute_preset_costs,
    describe_preset_cost,
    find_baseline,
    format_amount,
)
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome, RunReplay
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.translation import format_number, format_percent, tr
from helix_desktop.gui.workbench_types import Workbench

FIRST_COLUMN_OF_DETAILS = 3
NAME_WIDTH_IN_CHARACTERS = 46  # Of the column with what each setting does, in lines of text.
CLOCK_INTERVAL_MS = 1_000
SECONDS_WITH_DECIMALS = 10  # Durations below have a decimal elsewhere, which a clock has not.
NOTHING_IS_SHORTENED = "none"  # The setting's name in the workspace's settings file.


@dataclass(slots=True)
class ReplayProgress:
    """`done` of `total` replays have ended. `total`: 0 until the simulation has begun."""

    started_at: float = 0.0
    done: int = 0
    total: int = 0


def describe_replay_progress(progress: ReplayProgress, now: float) -> str:
    if progress.total:
        words = tr(
            "Trying each setting: {done} of {total} done", done=progress.done, total=progress.total
        )
    else:
        words = tr("Reading what was said…")
    seconds = int(now - progress.started_at)
    if not seconds:
        return words
    duration = format_duration(seconds)
    if seconds < SECONDS_WITH_DECIMALS:
        duration = tr("{n} s", n=format_number(seconds))
    return f"{words} · {duration}"


class ReplayLabDialog(TransientDialog):
    """Starts replaying when it is created. `policies` maps names to titles."""

    policy_adopted = Signal(str)

    def __init__(
        self,
        bench: Workbench,
        conversations: Sequence[ConversationListRow],
        policies: Sequence[tuple[str, str]],
        play: RunReplay,
        setup: ModelSetupPort,
        runner: BackgroundRunner,
        parent: QWidget,
    ) -> None:
        title = tr("Lab: what each setting would have cost")
        if len(conversations) == 1:
            title = tr("Lab: what would other settings have cost here?")
        super().__init__(title, parent, 760, 320)
        self._bench = bench
        self._runner = runner
        self._names = dict(policies)
        self._count = len(conversations)
        self._paid = sum(row.cost for row in conversations)
        self._window = conversations[0].window
        self._compared_by = choose_comparison(bench.models.model_facts(), self._paid)
        self._costs: dict[str, PresetCost] = {}
        self._adopting: dict[str, QPushButton] = {}

        self.answer = build_plain_label("", "title", self)
        # What really happened, in the meter's words.
        self._savings_label = build_plain_label("", "", self)
        self._savings_label.hide()
        # Why tokens are compared and not costs.
        self._basis = build_plain_label("", "", self)
        self._basis.hide()
        nothing_read_yet = SentRequests()
        comparison = self._describe_comparison(nothing_read_yet)
        self._compared_label = build_plain_label(comparison, "muted", self)
        progress_row = self._build_progress_row()
        self._table = QGridLayout()
        self._status_label = build_plain_label("", "muted", self)
        self._status_label.hide()
        details_label = tr("More figures")
        self._details_button = build_push_button(details_label, self, self._show_details, "link")
        self._details_button.hide()
        details_row = build_row(self._details_button, 1)
        self._details: list[QWidget] = []
        explanation = tr("Figures with ≈ come from a simulation of the same conversation, with the same pauses and prices: nothing is sent. Peak: the largest request that was sent, as a share of the context window; the meter also counts the reply to it. In view: of the text that was needed again, the share that was still in the context.")  # fmt: skip
        self._explanation = build_plain_label(explanation, "muted", self)
        self._explanation.hide()
        model_comparison = self._build_model_comparison()
        close_button = build_push_button(tr("Close"), self, self.reject)
        close_row = build_row(1, self._again, close_button, spacing=8)
        build_column(
            self.answer,
            self._basis,
            self._savings_label,
            self._compared_label,
            progress_row,
            self._table,
            self._status_label,
            details_row,
            self._explanation,
            model_comparison,
            1,
            close_row,
            owner=self,
            margins=20,
            spacing=12,
        )

        ids = [row.id for row in conversations]
        policy_names = list(self._names)
        self._play = partial(
            play, bench, ids, policy_names, self._window, self._note_replay_progress
        )
        reading = self._read_sent_requests(conversations)
        listing = setup.list_known_models()
        runner.run_in_background(reading, then=self._show_sent_requests, owner=self)
        runner.run_in_background(listing, then=self._add_known_models, owner=self)
        self._start_replay()

    def _build_progress_row(self) -> QHBoxLayout:
        self._bar = QProgressBar(self, textVisible=False)
        self._progress = ReplayProgress()
        self._clock = QTimer(self, interval=CLOCK_INTERVAL_MS)
        self._clock.timeout.connect(self._show_progress)
        self._stop = build_push_button(tr("Stop"), self, self._stop_replay)
        self._again = build_push_button(tr("Try again"), self, self._start_replay)
        return build_row((self._bar, 1), self._stop, spacing=12)

    def show_savings(self, sentence: str) -> None:
        """Says first what shortening has saved in the only conversation, as the meter says it."""
        self._savings_label.setText(sentence)
        self._savings_label.setVisible(bool(sentence))

    def _describe_comparison(self, requests: SentRequests) -> str:
        """Says what the lines of the table are, and in which window."""
        about_settings = tr(
            "With each message, the model reads the whole conversation so far. A setting says when older parts of it are sent in a shorter form, which costs less; the originals stay on this computer."
        )
        return join_sentences(about_settings, self._describe_lines(requests))

    def _describe_lines(self, requests: SentRequests) -> str:
        if self._count > 1:
            return tr(
                "Each line is the same conversations with another setting for long conversations. Nothing is sent."
            )
        words = tr(
            "Each line is the same conversation with another setting for long conversations, in a context window of {window} tokens. Nothing is sent.",
            window=format_token_count(self._window),
        )
        other_windows = [window for window in requests.windows if window != self._window]
        if not requests.is_window_known:
            words = tr(
                "Each line is the same conversation with another setting for long conversations. The size of the context window is not known; {window} tokens are assumed. Nothing is sent.",
                window=format_token_count(self._window),
            )
        elif other_windows:
            changed = tr(
                "Its context window was {windows} before, so a line may say less or more than there really was.",
                windows=", ".join(map(format_token_count, other_windows)),
            )
            words = join_sentences(words, changed)
        return words

    # --- Another model

    def _build_model_comparison(self) -> QWidget:
        """Builds the line in which a second model is chosen, and what it would have cost."""
        self._sent_requests: SentRequests | None = None
        self._models: dict[str, ModelChoice] = {}
        self._model_box = build_combo_box(tr("With another model"), self)
        self._model_box.addItem(tr("Choose a model…"), "")
        self._model_box.currentIndexChanged.connect(self._show_cost_with_model)
        self._model_answer = build_plain_label("", "", self)
        self._model_answer.hide()
        self._model_panel = QWidget(self)
        title = build_plain_label(tr("With another model"), "heading", self)
        row = build_row(self._model_box, 1)
        build_column(title, row, self._model_answer, owner=self._model_panel, margins=0, spacing=4)
        self._model_panel.hide()
        return self._model_panel

    async def _read_sent_requests(self, rows: Sequence[ConversationListRow]) -> SentRequests:
        histories: list[Sequence[Recorded]] = []
        for row in rows:
            histories.append(await self._bench.read_conversation_facts(row.id))
        return collect_sent_requests(histories)

    def _show_sent_requests(self, requests: SentRequests) -> None:
        self._sent_requests = requests
        self._compared_label.setText(self._describe_comparison(requests))
        self._show_model_panel()

    def _add_known_models(self, models: Sequence[ModelChoice]) -> None:
        for model in models:
            self._models[model.name] = model
            self._model_box.addItem(model.name, model.name)
        self._show_model_panel()

    def _show_model_panel(self) -> None:
        """The line is shown once there is something to compare: requests, and another model."""
        has_requests = self._sent_requests is not None and bool(self._sent_requests.usages)
        self._model_panel.setVisible(has_requests and bool(self._models))

    def _show_cost_with_model(self) -> None:
        chosen_name = str(self._model_box.currentData())
        model = self._models.get(chosen_name)
        words = ""
        if model is not None and self._sent_requests is not None:
            words = describe_cost_with_model(self._sent_requests, model, self._paid)
        self._model_answer.setText(words)
        self._model_answer.setVisible(bool(words))

    # --- The presets

    def done(self, result: int) -> None:
        self._working.cancel()
        super().done(result)

    def _start_replay(self) -> None:
        self._progress = ReplayProgress(started_at=time.monotonic())
        self._bar.show()
        self._stop.show()
        self._again.hide()
        self._clock.start()
        self._show_progress()
        self._working: CancellableWork = self._runner.run_in_background(
            self._play(), then=self._show_outcomes, owner=self, failed=self._show_replay_error
        )

    def _note_replay_progress(self, done: int, total: int) -> None:
        self._progress.done = done
        self._progress.total = total
        self._show_progress()

    def _show_progress(self) -> None:
        """Counts the seconds too: until the first setting has been tried, nothing else moves."""
        self._bar.setRange(0, self._progress.total)
        self._bar.setValue(self._progress.done)
        self.answer.setText(describe_replay_progress(self._progress, time.monotonic()))

    def _end_replay(self) -> None:
        self._clock.stop()
        self._bar.hide()
        self._stop.hide()

    def _stop_replay(self) -> None:
        self._working.cancel()
        self._end_replay()
        self.answer.setText(tr("Stopped. Nothing was changed."))
        self._again.show()

    def _show_replay_error(self, error: HelixError) -> None:
        self._end_replay()
        self.answer.setText(translate_sentences(str(error)))
        self._again.show()

    def _show_outcomes(self, outcomes: Sequence[PolicyOutcome]) -> None:
        self._end_replay()
        policy_in_use = self._bench.policy_name
        self._baseline = find_baseline(outcomes, policy_in_use)
        self._costs = compute_preset_costs(outcomes, policy_in_use, self._paid, self._compared_by)
        if not any(cost.fits for cost in self._costs.values()):
            # Five lines that say "too long" compare nothing.
            self._say_that_nothing_fits()
            return
        cheapest = self._find_cheapest(outcomes)
        self.answer.setText(self._describe_cheapest(cheapest))
        basis = self._explain_comparison_of_tokens()
        self._basis.setText(basis)
        self._basis.setVisible(bool(basis))

        heading_of_costs = tr("Cost")
        if self._compared_by is not ComparedBy.COST:
            heading_of_costs = tr("Sent")
        headings = [tr("Setting"), heading_of_costs, "", tr("Peak"), tr("In view")]
        for column, heading in enumerate(headings):
            label = build_plain_label(heading, "faint", self, wraps=False)
            self._add_cell(label, 0, column)
        ranked = sorted(outcomes, key=self._rank_by_cost)
        for row, outcome in enumerate(ranked, 1):
            for column, cell in enumerate(self._build_policy_cells(outcome)):
                self._add_cell(cell, row, column)
        self._table.setColumnStretch(len(headings), 1)
        self._explain_larger_settings(outcomes)
        self._details_button.show()

    def _say_that_nothing_fits(self) -> None:
        alone = tr(
            "The settings cannot be compared here: with each of them, a request would be too long for a context window of {window} tokens.",
            window=format_token_count(self._window),
        )
        several = tr("The settings cannot be compared: with each of them, a request would be too long for the context window.")  # fmt: skip
        if self._count > 1:
            self.answer.setText(several)
        else:
            self.answer.setText(alone)

    def _explain_larger_settings(self, outcomes: Sequence[PolicyOutcome]) -> None:
        """Says why a setting that shortens may cost more than one that shortens nothing."""
        unshortened = self._costs.get(NOTHING_IS_SHORTENED)
        if unshortened is None or not unshortened.fits:
            return
        for outcome in outcomes:
            cost = self._costs[outcome.policy]
            is_larger = cost.fits and cost.share > unshortened.share
            if is_larger and not cost.is_about_the_same:
                self._status_label.setText(
                    tr(
                        "Shortening can also cost more: what was shortened is read again when it is needed, and each time the provider charges the full price for what follows."
                    )
                )
                self._status_label.show()
                return

    def _add_cell(self, cell: QWidget, row: int, column: int) -> None:
        """Adds a cell to the table. Those of the last columns are shown with the details."""
        self._table.addWidget(cell, row, column)
        if column >= FIRST_COLUMN_OF_DETAILS:
            self._details.append(cell)
            cell.hide()

    def _show_details(self) -> None:
        self._details_button.hide()
        self._explanation.show()
        for cell in self._details:
            cell.show()

    def _find_cheapest(self, outcomes: Sequence[PolicyOutcome]) -> PolicyOutcome:
        return min(outcomes, key=self._rank_by_cost)

    def _rank_by_cost(self, outcome: PolicyOutcome) -> tuple[bool, float, bool]:
        """Ranks the cheapest first. What would not have fit into the window could not have been
        sent at any price, so it comes last.
        """
        cost = self._costs[outcome.policy]
        share = cost.share
        if cost.is_about_the_same:
            share = 1.0  # Of equal ones, that which was used comes first: a change gains nothing.
        return not cost.fits, share, outcome is not self._baseline

    def _describe_cheapest(self, outcome: PolicyOutcome) -> str:
        if all(cost.fits and cost.is_about_the_same for cost in self._costs.values()):
            return tr("With every setting, it would have come to about the same.")
        shown = {
            "name": self._names[outcome.policy],
            "amount": format_amount(self._costs[outcome.policy]),
            "before": format_amount(self._costs[self._baseline.policy]),
        }
        if self._compared_by is ComparedBy.COST:
            return self._describe_lowest_cost(outcome, shown)
        # Without a price, less text is no saving that anybody could name.
        if outcome is self._baseline:
            return tr("No other setting would have sent less to the model.")
        return tr("“{name}” would have sent the least to the model: about {amount} instead of {before}.", **shown)  # fmt: skip

    def _describe_lowest_cost(self, outcome: PolicyOutcome, shown: Mapping[str, str]) -> str:
        if outcome is self._baseline:
            alone = tr("No other setting would have cost less here.")
            several = tr("In your last {n} conversations, no other setting would have cost less.", n=self._count)  # fmt: skip
        else:
            alone = tr("“{name}” would have cost the least here: about {amount} instead of {before}.", **shown)  # fmt: skip
            several = tr("In your last {n} conversations, “{name}” would have cost the least: about {amount} instead of {before}.", n=self._count, **shown)  # fmt: skip
        if self._count > 1:
            return several
        return alone

    def _explain_comparison_of_tokens(self) -> str:
        match self._compared_by:
            case ComparedBy.TOKENS_AS_FREE:
                return tr("The model in use costs nothing as far as is known, so the table compares the tokens that would have been sent.")  # fmt: skip
            case ComparedBy.TOKENS_AS_PRICE_UNKNOWN:
                return tr("No price is known for the model in use, so costs cannot be compared. The table compares the tokens that would have been sent.")  # fmt: skip
            case ComparedBy.TOKENS_AS_NOTHING_PAID:
                return tr("No request from Helix Desktop has been paid here yet, so the table compares the tokens that would have been sent.")  # fmt: skip
        return ""

    def _build_policy_cells(self, outcome: PolicyOutcome) -> Sequence[QWidget]:
        name = self._names[outcome.policy]
        meaning = describe_preset_plainly(outcome.policy)
        preset_cost = self._costs[outcome.policy]
        peak = format_percent(outcome.peak)
        in_view = format_percent(outcome.in_view)
        is_in_use = outcome.policy == self._bench.policy_name
        if is_in_use and not preset_cost.fits:
            # Otherwise, this would say that nothing can be sent.
            cost = tr("too long in a simulation of all of it: {peak} of the context window", peak=peak)  # fmt: skip
        else:
            cost = describe_preset_cost(preset_cost)
        return [
            self._build_name_cell(name, meaning),
            build_plain_label(cost, "small", self, wraps=False),
            self._build_adopt_button(outcome),
            build_plain_label(peak, "small", self, wraps=False),
            build_plain_label(in_view, "small", self, wraps=False),
        ]

    def _build_name_cell(self, name: str, meaning: str) -> QWidget:
        """Builds a setting's name, and below it what it does."""
        cell = QWidget(self)
        cell.setMinimumWidth(self.fontMetrics().averageCharWidth() * NAME_WIDTH_IN_CHARACTERS)
        name_label = build_plain_label(name, "", cell)
        meaning_label = build_plain_label(meaning, "faint", cell)
        # The rows come when the dialog has its height, and the grid would cut off a second line.
        meaning_label.ensurePolished()
        lines_height = meaning_label.heightForWidth(cell.minimumWidth())
        meaning_label.setMinimumHeight(lines_height)
        build_column(name_label, meaning_label, owner=cell, margins=0, spacing=2)
        return cell

    def _build_adopt_button(self, outcome: PolicyOutcome) -> QWidget:
        """Builds the button that makes a setting the workspace's. There is none for what would not
        have fit.
        """
        policy = outcome.policy
        if not self._costs[policy].fits and policy != self._bench.policy_name:
            return build_plain_label("", "small", self)
        adopt_policy = partial(self._adopt_policy, policy)
        # Every row has this button, so a screen reader needs the setting's name in it.
        spoken_name = f"{tr('Use this setting')}: {self._names[policy]}"
        button = build_push_button("", self, adopt_policy, "link", name=spoken_name)
        self._adopting[policy] = button
        self._mark_policy_in_use()
        return button

    def _mark_policy_in_use(self) -> None:
        for policy, button in self._adopting.items():
            is_in_use = policy == self._bench.policy_name
            button.setEnabled(not is_in_use)
            if is_in_use:
                button.setText(tr("in use"))
            else:
                button.setText(tr("Use this setting"))

    def _adopt_policy(self, policy: str) -> None:
        def report_adopted_policy(_done: None) -> None:
            self._mark_policy_in_use()
            self._status_label.setText(
                tr("This workspace now uses: {policy}.", policy=self._names[policy])
            )
            self._status_label.show()
            self.policy_adopted.emit(policy)

        work = self._bench.choose_context_policy(policy)
        self._runner.run_in_background(
            work, then=report_adopted_policy, owner=self, failed=self._show_replay_error
        )
