"""What a workspace is set to: instructions, its policy with every threshold, its limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine import policy
from helix_desktop.gui.background import Doing
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.shared.policies import policy_choices
from helix_desktop.gui.words import tr

MEGABYTE = 1_000_000
# Where a turn stops by itself: name, title, sentence, usual value, the most. See engine/collaborators.py.
LIMITS: tuple[tuple[str, str, str, Value, float], ...] = (
    ("steps", "Steps per turn", "A turn stops after this many requests to the model.", 400, 100_000),
    ("repeats", "Repeats", "A turn stops after this many identical calls with identical outputs.", 5, 1_000),
    ("turn_cost", "Cost limit per turn", "In dollars. 0 means no limit.", 0.0, 10_000),
    ("day_cost", "Cost limit per day", "In dollars. 0 means no limit.", 0.0, 100_000),
    ("workspace_cost", "Total cost limit", "In dollars, for this workspace. 0 means no limit.", 0.0, 1_000_000),
    ("agents", "Agents per conversation", "How many agents one conversation may start.", 32, 10_000),
    (
        "agents_depth",
        "Levels of agents",
        "How many levels deep agents may delegate to other agents. 0 means no delegation.",
        2,
        20,
    ),
    (
        "agents_at_once",
        "Maximum agents at once",
        "How many agents in one conversation can work at the same time.",
        4,
        200,
    ),
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
        "In dollars, for all agents in a conversation. 0 means no limit.",
        0.0,
        1e5,
    ),
)


class InstructionsPage(Page):
    """What the user tells every agent of this workspace."""

    everywhere_wanted = Signal()

    def __init__(self, bench: Workbench, doing: Doing) -> None:
        super().__init__(tr("Instructions"))
        self._bench, self._doing = bench, doing
        sentence = tr("Sent with the system prompt to every agent in this workspace, starting with the next message.")
        declared = Declared("instructions", "", sentence, bench.workspace.settings.instructions, long=True)
        self.add(row(declared, self._write, self.inside))
        self.sentence(
            tr("The system prompt is cached by the provider. The first message after a change costs a little more.")
        )
        self.button(tr("Instructions for every workspace…"), "link").clicked.connect(self.everywhere_wanted)

    def _write(self, text: Value) -> None:
        work = self._bench.change({"instructions": str(text).strip() or None})
        self._doing.do(work, name="write the instructions", owner=self)


class PolicyPage(Page):
    """The preset, and every threshold with what it means. A value that differs from the preset can be put back."""

    def __init__(self, bench: Workbench, doing: Doing) -> None:
        super().__init__(tr("Policy"))
        self._bench, self._doing = bench, doing
        self._fill()

    def _fill(self) -> None:
        self.clear()
        chosen = self._bench.workspace.settings
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
        title = tr(threshold.title)
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
        work = self._bench.choose_policy(preset, values)
        self._doing.do(work, name="set the policy", then=lambda _done: self._fill() if again else None, owner=self)


class CheckpointsPage(Page):
    """What checkpoints cover, and how long they are kept."""

    def __init__(self, bench: Workbench, program: Installation, doing: Doing) -> None:
        super().__init__(tr("Checkpoints"))
        self._bench, self._doing = bench, doing
        covered = program.covered(bench)
        self.sentence(
            tr(
                "Helix Desktop saves the state of the folder before and after each step that may change files, so every change can be undone."
            )
        )
        rows = (
            Declared(
                "off",
                tr("Turn checkpoints off"),
                tr("If checkpoints are off, changes made by commands can't be undone."),
                covered.off,
            ),
            Declared(
                "leave_out",
                tr("Not covered"),
                tr("One rule per line, such as node_modules/, *.iso or target/ beside Cargo.toml."),
                "\n".join(covered.leave_out),
                long=True,
            ),
            Declared(
                "most_files",
                tr("Most files that are covered"),
                tr("What is new beyond this is left out and listed under Changes. 0 means no limit."),
                covered.most_files,
                least=0,
                most=100_000_000,
                unset=tr("No limit"),
            ),
            Declared(
                "most_bytes",
                tr("Most that is covered"),
                tr("What is new beyond this is left out and listed under Changes. 0 means no limit."),
                covered.most_bytes // MEGABYTE,
                least=0,
                most=100_000_000,
                unit="MB",
                unset=tr("No limit"),
            ),
            Declared(
                "keep_days",
                tr("Keep checkpoints for"),
                tr("Older checkpoints are removed when space is freed up."),
                covered.keep_days,
                least=0,
                most=36_500,
                unit=tr("days"),
            ),
        )
        for declared in rows:
            self.add(row(declared, partial(self._set, declared.name), self.inside))
        self._room = self.sentence("")
        doing.do(bench.changes.room(), name="ask what checkpoints take", then=self._say_room, owner=self)

    def _say_room(self, room: tuple[int, int]) -> None:
        self._room.setText(tr("Checkpoints currently take up {size}.", size=size(room[1])))

    def _set(self, name: str, value: Value) -> None:
        changed: object = value
        if name == "leave_out":
            changed = [line.strip() for line in str(value).splitlines() if line.strip()]
        elif name == "most_bytes":
            changed = int(value) * MEGABYTE
        work = self._bench.change({f"changes.{name}": changed})
        self._doing.do(work, name="change what checkpoints cover", owner=self)


class LimitsPage(Page):
    """Where a turn stops by itself."""

    def __init__(self, bench: Workbench, doing: Doing) -> None:
        super().__init__(tr("Limits"))
        self._bench, self._doing = bench, doing
        chosen = bench.workspace.settings.limits
        for name, title, sentence, usual, most in LIMITS:
            value = type(usual)(chosen.get(name, usual))
            unset = "" if usual else tr("No limit")
            declared = Declared(name, tr(title), tr(sentence), value, least=0, most=most, unset=unset)
            self.add(row(declared, partial(self._set, name), self.inside))

    def _set(self, name: str, value: Value) -> None:
        work = self._bench.change({f"limits.{name}": value})
        self._doing.do(work, name="set a limit", owner=self)


def in_words(value: Any) -> str:
    """A threshold's value as people read it."""
    known = {
        "off": tr("Off"),
        "ask": tr("Ask the agent"),
        "ahead": tr("Let the agent say in advance what it needs"),
        "auto": tr("Keep a preview"),
        "steps": tr("After a set number of steps"),
        "panic": tr("Only when the next request wouldn't fit"),
        "share": tr("When a set share of the window is full"),
        "pays": tr("When it saves money"),
        "cheapest": tr("Whichever is cheaper"),
        "main": tr("The main model"),
        "fast": tr("The fast model"),
        True: tr("On"),
        False: tr("Off"),
    }
    return known[value] if isinstance(value, str | bool) and value in known else str(value)
