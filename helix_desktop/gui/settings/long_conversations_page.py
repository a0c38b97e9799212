"""Long conversations: three choices in plain words, the presets of two other systems by name, and
limits on what is spent. Every threshold is in the workspace's settings file.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from PySide6.QtWidgets import QButtonGroup, QRadioButton, QWidget

from helix_desktop.engine import context_policy
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
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbench

MOST_DOLLARS_OF_TURN = 10_000.0
MOST_DOLLARS_OF_DAY = 100_000.0


@dataclass(frozen=True, slots=True)
class CostLimit:
    """A limit in dollars; 0 means none. `name`: as in `engine/session_setup.py` and the file."""

    name: str
    title: str
    most: float


def list_cost_limits() -> tuple[CostLimit, ...]:
    """Return the limits that are set here. All others are in the settings file."""
    return (
        CostLimit("turn_cost", tr("Cost limit per turn"), MOST_DOLLARS_OF_TURN),
        CostLimit("day_cost", tr("Cost limit per day"), MOST_DOLLARS_OF_DAY),
    )


class LongConversationsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Long conversations"), bench, doing)
        self._choices: dict[str, QRadioButton] = {}
        self._cards: dict[str, QWidget] = {}
        self.rebuild_page()

    def rebuild_page(self) -> None:
        self.clear_page()
        self._choices = {}
        self._cards = {}
        self._group = QButtonGroup(self)
        self.add_sentence(
            tr("What happens as a conversation grows. Nothing is ever deleted: everything can be searched, recalled and put back.")
        )  # fmt: skip
        for choice in list_plain_choices():
            self._add_choice(choice)
        question = tr("What would each have cost in my recent conversations?")
        self.add_page_button(question, partial(self.wanted.emit, "compare-presets"), "link")
        self.add_heading(tr("The ways of two other systems"))
        for choice in list_named_presets():
            self._add_choice(choice)
        settings = self._bench.workspace.settings
        if settings.policy:
            changed = ", ".join(sorted(settings.policy))
            self.add_sentence(tr("Changed in the settings file: {names}", names=changed))
            preset = settings.preset or context_policy.DEFAULT_PRESET
            self.add_page_button(
                tr("Use the choice's own values"), partial(self._save_choice, preset), "link"
            )
        self._add_limits(settings.limits)
        self.add_sentence(
            tr("All thresholds and limits can be set in the workspace's settings file."), "faint"
        )
        self.add_page_button(tr("Open file"), self._open_settings_file, "link")
        self._mark_choice(settings.preset or context_policy.DEFAULT_PRESET)

    def _add_choice(self, choice: PresetChoice) -> None:
        card = build_surface(self.page_content, "card")
        button = QRadioButton(choice.title, card)
        button.setAccessibleDescription(choice.sentence)
        button.toggled.connect(partial(self._choose_when_checked, choice.preset))
        self._group.addButton(button)
        sentence = build_plain_label(choice.sentence, "muted", card)
        build_column(button, sentence, owner=card, margins=(12, 8, 12, 8), spacing=2)
        self._choices[choice.preset] = button
        self._cards[choice.preset] = card
        self.add_page_widget(card)

    def _add_limits(self, chosen: Mapping[str, Any]) -> None:
        self.add_heading(tr("Limits"))
        for limit in list_cost_limits():
            declared = FieldDeclaration(
                limit.name,
                limit.title,
                tr("In dollars. 0 means no limit."),
                float(chosen.get(limit.name, 0.0)),
                least=0,
                most=limit.most,
                unset=tr("No limit"),
            )
            self.add_field(declared, partial(self.change_setting, f"limits.{limit.name}"))
        unpriced: set[str] = set()
        for model_fact in self._bench.models.model_facts():
            if has_unknown_price(model_fact):
                unpriced.add(model_fact.model)
        for model in sorted(unpriced):
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
        self._doing.run_in_background(work, then=lambda _done: self.rebuild_page(), owner=self)

    def _open_settings_file(self) -> None:
        open_in_desktop_program(self._bench.workspace.folder / "workspace.toml")
