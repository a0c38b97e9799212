"""The pages of a workspace: instructions, its policy with every threshold, its limits."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from helix_desktop.engine import context_policy
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.rewrite_cost_line import describe_missing_price
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.policy_names import list_policy_choices
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value
from helix_desktop.gui.model_setup_port import has_unknown_price
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.resources import read_json_resource

MEGABYTE = 1_000_000
# The thresholds that people change most. The page "Advanced" shows all others.
BASIC_THRESHOLDS = ("admission", "caching", "observation", "handover")
# The limits that stop a turn (see engine/session_setup.py): name, title, description,
# default and maximum.
TURN_LIMITS: Sequence[tuple[str, str, str, Value, float]] = read_json_resource("turn_limits.json")


class InstructionsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Instructions"), bench, doing)
        sentence = tr("These instructions are sent with the system prompt to every agent in this workspace, starting with the next message.")  # fmt: skip
        declared = FieldDeclaration(
            "instructions", "", sentence, bench.workspace.settings.instructions, long=True
        )
        self.add_field(
            declared, lambda text: self.change_setting("instructions", str(text).strip() or None)
        )
        self.add_sentence(
            tr(
                "The system prompt is cached by the provider. The first message after a change costs a little more."
            )
        )
        self.add_page_button(
            tr("Instructions for every workspace…"), partial(self.wanted.emit, "general"), "link"
        )


class PolicyPage(WorkspaceSettingsPage):
    """The preset. All other thresholds are on the page "Advanced", where the preset's
    values can be restored.
    """

    def __init__(self, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Policy"), bench, doing)
        self._is_advanced_open = any(
            name not in BASIC_THRESHOLDS for name in bench.workspace.settings.policy
        )
        self._rebuild_policy_page()

    def _rebuild_policy_page(self) -> None:
        self.clear_page()
        chosen = self._bench.workspace.settings
        self._preset = chosen.preset or context_policy.DEFAULT_PRESET
        self._values: dict[str, Any] = dict(chosen.policy)
        names, words = zip(*list_policy_choices(), strict=True)
        preset = FieldDeclaration(
            "preset",
            tr("Preset"),
            tr(context_policy.PRESETS[self._preset]),
            self._preset,
            names,
            words,
        )
        self.add_field(preset, lambda value: self._save_policy(str(value), {}, rebuilds=True))
        question = tr("What would each preset have cost in my recent conversations?")
        self.add_page_button(question, partial(self.wanted.emit, "compare-presets"), "link")
        if self._values:
            self.add_page_button(
                tr("Reset to the preset"),
                lambda: self._save_policy(self._preset, {}, rebuilds=True),
            )
        declared = context_policy.declared_thresholds()
        for name in BASIC_THRESHOLDS:
            self._add_threshold_row(declared[name])
        if not self._is_advanced_open:
            self.add_page_button(tr("Advanced…"), self._open_advanced, "link")
            return
        group = ""
        for threshold in declared.values():
            if threshold.group != group:
                group = threshold.group
                self.add_heading(tr(group))
            if threshold.name not in BASIC_THRESHOLDS:
                self._add_threshold_row(threshold)

    def _open_advanced(self) -> None:
        self._is_advanced_open = True
        self._rebuild_policy_page()

    def _add_threshold_row(self, threshold: context_policy.Threshold) -> None:
        usual = threshold.defaults[self._preset]
        value = self._values.get(threshold.name, usual)
        title, about = tr(threshold.title), tr(threshold.sentence)
        if value != usual:
            about = f"{about} {tr('Preset: {value}.', value=describe_threshold_value(usual))}"
        words = [describe_threshold_value(choice) for choice in threshold.choices]
        scale = (threshold.low, threshold.high, tr(threshold.unit) if threshold.unit else "")
        declared = FieldDeclaration(
            threshold.name, title, about, value, threshold.choices, words, *scale
        )
        self.add_field(declared, lambda found: self._save_threshold(threshold, found))

    def _save_threshold(self, threshold: context_policy.Threshold, value: Value) -> None:
        values = {**self._values, threshold.name: value}
        if value == threshold.defaults[self._preset]:
            del values[threshold.name]
        self._values = values
        self._save_policy(self._preset, values)

    def _save_policy(
        self, preset: str, values: Mapping[str, Any], *, rebuilds: bool = False
    ) -> None:
        work = self._bench.choose_context_policy(preset, values)
        self._doing.run_in_background(
            work, then=lambda _done: self._rebuild_policy_page() if rebuilds else None, owner=self
        )


class CheckpointsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Checkpoints"), bench, doing)
        covered, days_to_keep = (
            bench.file_changes.coverage_in_settings,
            bench.file_changes.days_to_keep,
        )
        self.add_sentence(
            tr(
                "Helix Desktop saves the state of the folder before and after each step that may change files, so every change can be undone."
            )
        )
        off = tr("If checkpoints are off, changes made by commands cannot be undone.")
        rules = tr("Write one rule per line, for example node_modules/ or *.iso. “target/ beside Cargo.toml” matches only a target folder next to a Cargo.toml file.")  # fmt: skip
        beyond = tr(
            "Checkpoints leave out new files beyond this limit (see the Changes page). 0 means no limit."
        )
        older, unset = tr("Older checkpoints are removed when space is freed up."), tr("No limit")
        files, size = (
            tr("Maximum number of files per checkpoint"),
            tr("Maximum total size of files per checkpoint"),
        )
        most, megabytes = 100_000_000, covered.most_bytes // MEGABYTE
        days, keep = tr("days"), tr("Keep checkpoints for")
        rows = (
            FieldDeclaration("off", tr("Checkpoints"), off, not covered.off),
            FieldDeclaration(
                "leave_out", tr("Not covered"), rules, "\n".join(covered.leave_out), long=True
            ),
            FieldDeclaration(
                "most_files", files, beyond, covered.most_files, most=most, unset=unset
            ),
            FieldDeclaration(
                "most_bytes", size, beyond, megabytes, most=most, unit="MB", unset=unset
            ),
            FieldDeclaration("keep_days", keep, older, days_to_keep, most=36_500, unit=days),
        )
        for declared in rows:
            self.add_field(declared, partial(self._change_checkpoint_setting, declared.name))
        self._add_copies_section()
        self._disk_use_label = self.add_sentence("")
        work = bench.workspace.index.measure_checkpoint_bytes()
        doing.run_in_background(work, then=self._show_checkpoint_disk_use, owner=self)

    def _add_copies_section(self) -> None:
        """Adds the settings for copies of the repository: who works in one, and what is
        run in a new one.
        """
        chosen = self._bench.workspace.settings.copies
        self.add_heading(tr("Copies of the repository"))
        own = tr("Each new conversation and sub-agent works in its own copy. Changes reach your folders only when you bring them back.")  # fmt: skip
        first = tr("A command to run in each new copy before the first message is sent (for example, npm ci). You are asked before the command runs.")  # fmt: skip
        always, set_up = bool(chosen.get("always")), str(chosen.get("set_up", ""))
        for declared in (
            FieldDeclaration("always", tr("Work in copies of the repository"), own, always),
            FieldDeclaration("set_up", tr("Set-up command"), first, set_up),
        ):
            self.add_field(declared, partial(self._change_copies_setting, declared.name))

    def _change_copies_setting(self, name: str, value: Value) -> None:
        self.change_setting(f"copies.{name}", value or None)

    def _show_checkpoint_disk_use(self, room: tuple[int, int]) -> None:
        self._disk_use_label.setText(
            tr("Checkpoints currently take up {size}.", size=format_byte_size(room[1]))
        )

    def _change_checkpoint_setting(self, name: str, value: Value) -> None:
        changed: object = value
        if name == "leave_out":
            changed = [line.strip() for line in str(value).splitlines() if line.strip()]
        elif name == "most_bytes":
            changed = int(value) * MEGABYTE
        elif name == "off":
            changed = not value
        self.change_setting(f"changes.{name}", changed)


class TurnLimitsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Limits"), bench, doing)
        chosen = bench.workspace.settings.limits
        for name, title, sentence, usual, most in TURN_LIMITS:
            value = type(usual)(chosen.get(name, usual))
            unset = "" if usual else tr("No limit")
            declared = FieldDeclaration(
                name, tr(title), tr(sentence), value, least=0, most=most, unset=unset
            )
            self.add_field(declared, partial(self.change_setting, f"limits.{name}"))
        unpriced = {one.model for one in bench.models.model_facts() if has_unknown_price(one)}
        for model in sorted(unpriced):
            self.add_sentence(describe_missing_price(model), "")


def describe_threshold_value(value: Any) -> str:
    return translate_name("value of a threshold", str(value).lower(), otherwise=str(value))
