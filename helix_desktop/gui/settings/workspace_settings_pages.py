"""Pages of a workspace: its instructions, its checkpoints and copies."""

from functools import partial

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import Workbench


class InstructionsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, runner: BackgroundRunner) -> None:
        super().__init__(tr("Instructions"), bench, runner)
        sentence = tr("These instructions are sent with the system prompt to every agent in this workspace, starting with the next message.")  # fmt: skip
        declared = FieldDeclaration(
            "instructions", "", sentence, bench.workspace.settings.instructions, long=True
        )
        self.add_field(declared, self._save_instructions)
        self.add_sentence(
            tr(
                "The system prompt is cached by the provider. The first message after a change costs a little more."
            )
        )

    def _save_instructions(self, text: Value) -> None:
        # Without a value, the setting is removed from the file.
        self.change_setting("instructions", str(text).strip() or None)


class CheckpointsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, runner: BackgroundRunner) -> None:
        super().__init__(tr("Checkpoints"), bench, runner)
        what_they_are = tr(
            "Helix Desktop saves the state of the folder before and after each step that may change files, so every change can be undone."
        )
        self.add_sentence(what_they_are)
        what_is_lost = tr("If checkpoints are off, changes made by commands cannot be undone.")
        are_on = not bench.file_changes.coverage_in_settings.off
        switch_field = FieldDeclaration("off", tr("Checkpoints"), what_is_lost, are_on)
        self.add_field(switch_field, self._turn_checkpoints)
        days = format_count(bench.file_changes.days_to_keep, "{n} day", "{n} days")
        how_long_kept = tr(
            "Checkpoints older than {days} are removed when space is freed up. The number can be changed in the workspace's settings file.",
            days=days,
        )
        self.add_sentence(how_long_kept, "small")
        self._disk_use_label = self.add_sentence("")
        work = bench.workspace.index.measure_checkpoint_bytes()
        runner.run_in_background(work, then=self._show_checkpoint_disk_use, owner=self)
        self._add_copies_section()

    def _add_copies_section(self) -> None:
        """Adds who works in a copy. What is run in a new one is in the settings file."""
        self.add_heading(tr("Copies of the repository"))
        about_copies = tr("Each new conversation and sub-agent works in its own copy. Changes reach your folders only when you bring them back.")  # fmt: skip
        is_on = bool(self._bench.workspace.settings.copies.get("always"))
        field = FieldDeclaration(
            "always", tr("Work in copies of the repository"), about_copies, is_on
        )
        self.add_field(field, partial(self._change_copies_setting, "always"))

    def _change_copies_setting(self, name: str, value: Value) -> None:
        self.change_setting(f"copies.{name}", value or None)

    def _show_checkpoint_disk_use(self, measured: tuple[int, int]) -> None:
        _content_count, bytes_on_disk = measured
        size = format_byte_size(bytes_on_disk)
        self._disk_use_label.setText(tr("Checkpoints currently take up {size}.", size=size))

    def _turn_checkpoints(self, is_on: Value) -> None:
        self.change_setting("changes.off", not is_on)  # The file says what is off.
