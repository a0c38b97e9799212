"""The recorder: its settings, and how much of what each agent writes is read."""

from collections.abc import Sequence

from PySide6.QtWidgets import QVBoxLayout

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import build_plain_label
from helix_desktop.gui.settings.about_page import FINDING_SIGNS, translate_finding
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import DoctorFinding
from helix_desktop.program_settings import ProgramSettings


class RecorderPage(ProgramSettingsPage):
    def __init__(
        self, settings: ProgramSettings, program: Installation, runner: BackgroundRunner
    ) -> None:
        super().__init__(tr("Recorder"), settings, ["Recorder"])
        self._findings = QVBoxLayout()
        self.add_page_layout(self._findings)
        runner.run_in_background(
            program.examine_histories(), then=self._show_read_shares, owner=self
        )

    def _show_read_shares(self, findings: Sequence[DoctorFinding]) -> None:
        for finding in findings:
            text = f"{FINDING_SIGNS[finding.state]} {translate_finding(finding)}"
            self._findings.addWidget(build_plain_label(text, "small", self.page_content))
