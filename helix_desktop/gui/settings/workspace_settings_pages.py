"""Pages of a workspace: its instructions, its checkpoints and copies."""

from functools import partial

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbench


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


class CheckpointsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Checkpoints"), bench, doing)
        self.add_sentence(
            tr(
                "Helix Desktop saves the state of the folder before and after each step that may change files, so every change can be undone."
            )
        )
        off = tr("If checkpoints are off, changes made by commands cannot be undone.")
        older = tr("Older checkpoints are removed when space is freed up.")
        is_on = not bench.file_changes.coverage_in_settings.off
        for declared in (
            FieldDeclaration("off", tr("Checkpoints"), off, is_on),
            FieldDeclaration(
                "keep_days",
                tr("Keep checkpoints for"),
                older,
                bench.file_changes.days_to_keep,
                most=36_500,
                unit=tr("days"),
            ),
        ):
            self.add_field(declared, partial(self._change_checkpoint_setting, declared.name))
        self._add_copies_section()
        self._disk_use_label = self.add_sentence("")
        work = bench.workspace.index.measure_checkpoint_bytes()
        doing.run_in_background(work, then=self._show_checkpoint_disk_use, owner=self)

    def _add_copies_section(self) -> None:
        """Adds who works in a copy. What is run in a new one is in the settings file."""
        self.add_heading(tr("Copies of the repository"))
        own = tr("Each new conversation and sub-agent works in its own copy. Changes reach your folders only when you bring them back.")  # fmt: skip
        always = bool(self._bench.workspace.settings.copies.get("always"))
        self.add_field(
            FieldDeclaration("always", tr("Work in copies of the repository"), own, always),
            partial(self._change_copies_setting, "always"),
        )

    def _change_copies_setting(self, name: str, value: Value) -> None:
        self.change_setting(f"copies.{name}", value or None)

    def _show_checkpoint_disk_use(self, room: tuple[int, int]) -> None:
        self._disk_use_label.setText(
            tr("Checkpoints currently take up {size}.", size=format_byte_size(room[1]))
        )

    def _change_checkpoint_setting(self, name: str, value: Value) -> None:
        changed: object = value
        if name == "off":  # The file says what is off, the field what is on.
            changed = not value
        self.change_setting(f"changes.{name}", changed)
