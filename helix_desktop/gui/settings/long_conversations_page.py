"""Long conversations: three choices in plain words, the presets of two other systems by name, and
limits on what is spent. Every threshold is in the workspace's settings file.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QButtonGroup, QLabel, QRadioButton, QWidget

from helix_desktop.engine import context_policy
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.rewrite_cost_line import describe_missing_price
from helix_desktop.gui.common.policy_names import (
    PresetChoice,
    list_named_presets,
    list_plain_choices,
)
from helix_desktop.gui.common.setting_fields import FieldDeclaration
from helix_desktop.gui.common.widgets import build_plain_label, build_surface
from helix_desktop.gui.deep_links import open_in_desktop_program
from helix_desktop.gui.model_setup_port import has_unknown_price
from helix_desktop.gui.replay_lab.preset_costs import (
    choose_comparison,
    compute_preset_costs,
    describe_preset_cost,
)
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome, RunReplay
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import Workbench

COMPARED_CONVERSATIONS = 5  # Replaying more takes longer than anybody waits for an answer.
CARD_WIDTH_IN_LINES = 11  # Beside each other, the cards are at least so many line heights wide.
MOST_DOLLARS_OF_DAY = 100_000.0


@dataclass(frozen=True, slots=True)
class CostLimit:
    """A limit in dollars; 0 means none. `name`: as in `engine/session_setup.py` and the file."""

    name: str
    title: str
    most: float


def list_cost_limits() -> tuple[CostLimit, ...]:
    """Return the limits that are set here. That of a turn and all others are in the settings file."""
    return (CostLimit("day_cost", tr("Cost limit per day"), MOST_DOLLARS_OF_DAY),)


class LongConversationsPage(WorkspaceSettingsPage):
    def __init__(
        self, bench: Workbench, runner: BackgroundRunner, play: RunReplay | None = None
    ) -> None:
        """`play` replays conversations with other presets, to say what each would have cost."""
        super().__init__(tr("Long conversations"), bench, runner)
        self._play = play
        self._choices: dict[str, QRadioButton] = {}
        self._cards: dict[str, QWidget] = {}
        self._cost_labels: dict[str, QLabel] = {}
        # What each choice would have cost, once the user has asked.
        self._cost_by_preset: dict[str, str] = {}
        self.rebuild_page()

    def rebuild_page(self) -> None:
        """Builds the page again for the settings as they are now: the choices, what each would
        have cost, the ways of other systems, and the limits. Called once a choice was saved, too.
        """
        self.clear_page()
        self._choices = {}
        self._cards = {}
        self._cost_labels = {}
        self._group = QButtonGroup(self)
        self.add_sentence(
            tr("What happens as a conversation grows. Shortening deletes nothing: what was shortened can be searched, read again and put back.")
        )  # fmt: skip
        self._cards_row = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._cards_row.setSpacing(8)
        for choice in list_plain_choices():
            self._cards_row.addWidget(self._build_choice_card(choice), 1)
        self.add_page_layout(self._cards_row)
        self._arrange_cards()

        question = tr("What would each have cost in my recent conversations?")
        if self._cost_by_preset:
            question = tr("Compare in a table…")
        self._compare = self.add_page_button(question, self._compare_recent_costs, "link")
        self._compare_status = self.add_sentence("", "small")
        self._compare_status.hide()

        self.add_heading(tr("Two other ways"))
        for choice in list_named_presets():
            self.add_page_widget(self._build_choice_card(choice))

        settings = self._bench.workspace.settings
        if settings.policy:
            changed = ", ".join(sorted(settings.policy))
            self.add_sentence(tr("Changed in the settings file: {names}", names=changed))
            preset = settings.preset or context_policy.DEFAULT_PRESET
            reset = partial(self._save_choice, preset)
            self.add_page_button(tr("Use the choice's own values"), reset, "link")

        self._add_limits(settings.limits)
        self.add_sentence(
            tr("All thresholds and limits can be set in the workspace's settings file."), "faint"
        )
        self.add_page_button(tr("Open file"), self._open_settings_file, "link")
        self._mark_choice(settings.preset or context_policy.DEFAULT_PRESET)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange_cards()

    def _arrange_cards(self) -> None:
        """The three choices stand beside each other where there is room for their sentences."""
        least_width = len(list_plain_choices()) * CARD_WIDTH_IN_LINES * self.fontMetrics().height()
        direction = QBoxLayout.Direction.TopToBottom
        if self.viewport().width() >= least_width:
            direction = QBoxLayout.Direction.LeftToRight
        self._cards_row.setDirection(direction)

    def _build_choice_card(self, choice: PresetChoice) -> QWidget:
        card = build_surface(self.page_content, "card")
        button = QRadioButton(choice.title, card)
        button.setAccessibleDescription(choice.sentence)
        button.toggled.connect(partial(self._choose_when_checked, choice.preset))
        self._group.addButton(button)
        sentence = build_plain_label(choice.sentence, "muted", card)
        cost_words = self._cost_by_preset.get(choice.preset, "")
        cost = build_plain_label(cost_words, "", card)
        cost.setVisible(bool(cost.text()))
        build_column(button, sentence, cost, 1, owner=card, margins=(12, 8, 12, 8), spacing=2)
        self._choices[choice.preset] = button
        self._cards[choice.preset] = card
        self._cost_labels[choice.preset] = cost
        return card

    # --- What each choice would have cost

    def _compare_recent_costs(self) -> None:
        """Replays the last conversations with every choice, in a process that sends nothing."""
        if self._cost_by_preset:
            self.wanted.emit("compare-presets")
            return
        rows: list[ConversationListRow] = []
        for row in self._bench.list_conversations():
            if not row.trashed and not row.parent:
                rows.append(row)
        rows.sort(key=lambda row: row.updated, reverse=True)
        recent_rows = rows[:COMPARED_CONVERSATIONS]
        if self._play is None or not recent_rows:
            self._show_comparison_status(tr("There is no conversation to replay yet."))
            return
        self._compare.setEnabled(False)
        self._show_comparison_status(tr("Comparing…"))
        ids = [row.id for row in recent_rows]
        presets = list(context_policy.PRESETS)
        window = recent_rows[0].window
        replay = self._play(self._bench, ids, presets, window, self._show_comparison_progress)
        show_costs = partial(self._show_compared_costs, recent_rows)
        self._runner.run_in_background(
            replay, then=show_costs, failed=self._show_comparison_failure, owner=self
        )

    def _show_comparison_progress(self, done: int, total: int) -> None:
        self._show_comparison_status(tr("Comparing: {done} of {total}", done=done, total=total))

    def _show_compared_costs(
        self, rows: Sequence[ConversationListRow], outcomes: Sequence[PolicyOutcome]
    ) -> None:
        """Shows on each choice's card what it would have cost in the conversations of `rows`.

        `outcomes` are the results of the replays. The costs are kept, so that they are still
        there when the page is built again.
        """
        paid = sum(row.cost for row in rows)
        compared_by = choose_comparison(self._bench.models.model_facts(), paid)
        costs = compute_preset_costs(outcomes, self._bench.policy_name, paid, compared_by)
        count = format_count(len(rows), "{n} conversation", "{n} conversations")
        for preset, cost in costs.items():
            description = describe_preset_cost(cost)
            sentence = tr("Your last {count}: {cost}", count=count, cost=description)
            self._cost_by_preset[preset] = sentence

        for preset, label in self._cost_labels.items():
            cost_words = self._cost_by_preset.get(preset, "")
            label.setText(cost_words)
            label.setVisible(bool(cost_words))
        explanation = tr(
            "A simulation of the same conversations. The shares compare with the choice in use."
        )
        self._show_comparison_status(explanation)
        self._compare.setText(tr("Compare in a table…"))
        self._compare.setEnabled(True)

    def _show_comparison_failure(self, error: HelixError) -> None:
        self._compare.setEnabled(True)
        self._show_comparison_status(translate_sentences(str(error)))

    def _show_comparison_status(self, status: str) -> None:
        self._compare_status.setText(status)
        self._compare_status.setVisible(bool(status))

    def _add_limits(self, set_limits: Mapping[str, Any]) -> None:
        self.add_heading(tr("Limits"))
        explanation = tr(
            "In dollars. When a day has cost this much, the agents of this workspace stop."
        )
        for limit in list_cost_limits():
            set_limit = float(set_limits.get(limit.name, 0.0))
            declared = FieldDeclaration(
                limit.name,
                limit.title,
                explanation,
                set_limit,
                least=0,
                most=limit.most,
                unset=tr("No limit"),
            )
            change_limit = partial(self.change_setting, f"limits.{limit.name}")
            self.add_field(declared, change_limit)
        models_without_price: set[str] = set()
        for model_fact in self._bench.models.model_facts():
            if has_unknown_price(model_fact):
                models_without_price.add(model_fact.model)
        for model in sorted(models_without_price):
            self.add_sentence(describe_missing_price(model), "")

    def _mark_choice(self, preset: str) -> None:
        if preset in self._choices:
            choice = self._choices[preset]
            choice.blockSignals(True)
            choice.setChecked(True)
            choice.blockSignals(False)
        for name, card in self._cards.items():
            look = "card"
            if name == preset:
                look = "chosen-card"
            set_widget_look(card, look)

    def _choose_when_checked(self, preset: str, is_checked: bool) -> None:  # noqa: FBT001 - a slot
        if is_checked:
            self._save_choice(preset)

    def _save_choice(self, preset: str) -> None:
        work = self._bench.choose_context_policy(preset, {})
        self._runner.run_in_background(work, then=lambda _done: self.rebuild_page(), owner=self)

    def _open_settings_file(self) -> None:
        open_in_desktop_program(self._bench.workspace.folder / "workspace.toml")
