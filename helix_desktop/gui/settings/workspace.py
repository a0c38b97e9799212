"""What a workspace is set to: its models by role, its policy with every threshold, its permissions, its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtWidgets import QWidget

from helix_desktop.engine import policy
from helix_desktop.gui.background import Doing
from helix_desktop.gui.meter import short
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation
from helix_desktop.gui.setup import Model
from helix_desktop.gui.shared.policies import policy_choices
from helix_desktop.gui.words import tr

EFFORTS = ("", "low", "medium", "high")  # see ModelSet
# Where a turn stops by itself: name, title, sentence, usual value, the most. See engine/collaborators.py.
LIMITS: tuple[tuple[str, str, str, Value, float], ...] = (
    ("steps", "Steps per turn", "A turn stops after this many requests to the model.", 400, 100_000),
    ("repeats", "Repeats", "A turn stops after this many identical calls with identical outputs.", 5, 1_000),
    ("turn_cost", "Cost limit per turn", "In dollars. 0 means no limit.", 0.0, 10_000),
    ("day_cost", "Cost limit per day", "In dollars. 0 means no limit.", 0.0, 100_000),
    ("workspace_cost", "Total cost limit", "In dollars, for this workspace. 0 means no limit.", 0.0, 1_000_000),
    ("agents", "Agents per conversation", "How many agents may be started below one conversation.", 32, 10_000),
    ("agents_depth", "Depth of agents", "How deep agents may delegate to agents. 0 means no agents.", 2, 20),
    ("agents_at_once", "Agents side by side", "How many agents of one conversation work at the same time.", 4, 200),
    (
        "agents_seconds",
        "Time limit for agents",
        "In seconds, for all agents of a conversation. 0 means no limit.",
        0.0,
        1e7,
    ),
    (
        "agents_cost",
        "Cost limit for agents",
        "In dollars, for all agents of a conversation. 0 means no limit.",
        0.0,
        1e5,
    ),
)


class ModelsPage(Page):
    """Main, fast and long-window model of the workspace, and how long the main one is to think."""

    def __init__(
        self,
        bench: Workbench,
        program: Installation,
        doing: Doing,
        models: Sequence[Model],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(tr("Models"), parent)
        self._bench, self._program, self._doing = bench, program, doing
        self._models = {model.name: model for model in models}
        self.sentence(tr("If you choose no fast or long-window model, the main model is used instead."))
        chosen = program.chosen(bench).models
        for role, title, sentence in (
            ("main", tr("Main model"), tr("Used in conversations.")),
            ("fast", tr("Fast model"), tr("Compacts outputs, takes observations and writes summaries.")),
            ("long", tr("Long-window model"), tr("Used when something doesn't fit the other models.")),
        ):
            self.add(self._row(role, title, sentence, chosen.get(role, "")))
        self.add(self._thinking(program.chosen(bench).effort))
        if not models:
            self.sentence(tr("No models are known yet. Add a provider first."))

    def _row(self, role: str, title: str, sentence: str, current: str) -> QWidget:
        names = ["", *self._models]
        if current and current not in names:
            names.append(current)
        words = [tr("None") if not name and role == "main" else self._words(name) for name in names]
        declared = Declared(role, title, sentence, current, names, words)
        return row(declared, lambda value: self._choose(role, str(value)), self.inside)

    def _words(self, name: str) -> str:
        if not name:
            return tr("The main model")
        model = self._models.get(name)
        if model is None or not model.window:
            return name
        prices = f" · ${model.price_input:g} / ${model.price_output:g}" if model.price_input else ""
        return f"{name} · {short(model.window)}{prices}"

    def _thinking(self, current: str) -> QWidget:
        sentence = tr(
            "How long the main model thinks before it answers. Longer is better for hard problems, but slower and more expensive."
        )
        words = [tr("Default"), tr("Short"), tr("Medium"), tr("Long")]
        declared = Declared("effort", tr("Thinking"), sentence, current, EFFORTS, words)
        return row(declared, lambda value: self._think(str(value)), self.inside)

    def _think(self, effort: str) -> None:
        work = self._program.change(self._bench, {"effort": effort or None})
        self._doing.do(work, name="set how long to think", owner=self)

    def _choose(self, role: str, name: str) -> None:
        self._doing.do(self._program.choose_model(self._bench, name, role), name="choose a model", owner=self)


class PolicyPage(Page):
    """The preset, and every threshold with what it means. A value that differs from the preset can be put back."""

    def __init__(self, bench: Workbench, program: Installation, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(tr("Policy"), parent)
        self._bench, self._program, self._doing = bench, program, doing
        self._fill()

    def _fill(self) -> None:
        self.clear()
        chosen = self._program.chosen(self._bench)
        self._preset = chosen.preset or policy.DEFAULT_PRESET
        self._values: dict[str, Any] = dict(chosen.policy)
        names, words = zip(*policy_choices(), strict=True)
        preset = Declared("preset", tr("Preset"), tr(policy.PRESETS[self._preset]), self._preset, names, words)
        self.add(row(preset, lambda value: self._choose(str(value), {}), self.inside))
        if self._values:
            again = self.button(tr("Reset to the preset"))
            again.clicked.connect(lambda: self._choose(self._preset, {}))
        group = ""
        for threshold in policy.thresholds().values():
            if threshold.group != group:
                group = threshold.group
                self.heading(tr(group))
            self.add(self._row(threshold))

    def _row(self, threshold: policy.Threshold) -> QWidget:
        usual = threshold.defaults[self._preset]
        value = self._values.get(threshold.name, usual)
        title = tr(title_of(threshold.name))
        sentence = tr(threshold.sentence)
        if value != usual:
            sentence = f"{sentence} {tr('Preset: {value}.', value=in_words(usual))}"
        declared = Declared(
            threshold.name,
            title,
            sentence,
            value,
            threshold.choices,
            [in_words(choice) for choice in threshold.choices],
            threshold.low,
            threshold.high,
            tr(threshold.unit) if threshold.unit else "",
        )
        return row(declared, lambda found: self._set(threshold, found), self.inside)

    def _set(self, threshold: policy.Threshold, value: Value) -> None:
        values = {**self._values, threshold.name: value}
        if value == threshold.defaults[self._preset]:
            del values[threshold.name]
        self._values = values
        self._write(self._preset, values)

    def _choose(self, preset: str, values: Mapping[str, Any]) -> None:
        self._write(preset, values, again=True)

    def _write(self, preset: str, values: Mapping[str, Any], *, again: bool = False) -> None:
        work = self._program.choose_policy(self._bench, preset, values)
        self._doing.do(work, name="set the policy", then=lambda _done: self._fill() if again else None, owner=self)


class LimitsPage(Page):
    """Where a turn stops by itself."""

    def __init__(self, bench: Workbench, program: Installation, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(tr("Limits"), parent)
        self._bench, self._program, self._doing = bench, program, doing
        chosen = program.chosen(bench).limits
        for name, title, sentence, usual, most in LIMITS:
            value = type(usual)(chosen.get(name, usual))
            declared = Declared(name, tr(title), tr(sentence), value, least=0, most=most)
            self.add(row(declared, partial(self._set, name), self.inside))

    def _set(self, name: str, value: Value) -> None:
        work = self._program.change(self._bench, {f"limits.{name}": value})
        self._doing.do(work, name="set a limit", owner=self)


def in_words(value: Any) -> str:
    """A threshold's value as people read it."""
    known = {
        "off": tr("Off"),
        "ask": tr("The agent is asked"),
        "ahead": tr("The agent says in advance"),
        "auto": tr("Keep a preview"),
        "steps": tr("After a number of steps"),
        "panic": tr("Only when nothing else fits"),
        "share": tr("At a share of the window"),
        "pays": tr("When it saves money"),
        "cheapest": tr("Whichever is cheaper"),
        "main": tr("The main model"),
        "fast": tr("The fast model"),
        True: tr("On"),
        False: tr("Off"),
    }
    return known[value] if isinstance(value, str | bool) and value in known else str(value)


def title_of(threshold: str) -> str:
    """A threshold's name as words."""
    return threshold.replace("_", " ").capitalize()
