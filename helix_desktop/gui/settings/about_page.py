"""About: versions, licences, and the findings of the doctor."""

from collections.abc import Sequence

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QVBoxLayout

from helix_desktop import __version__
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import build_plain_label
from helix_desktop.gui.question_dialogs import show_text_box
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import DoctorFinding

FINDING_SIGNS = {"good": "✓", "note": "•", "bad": "✕"}


class AboutPage(SettingsPage):
    def __init__(self, program: Installation, doing: BackgroundRunner) -> None:
        super().__init__(tr("About"))
        self.add_sentence(f"Helix Desktop {__version__}", "")
        self.add_sentence(
            ", ".join(f"{name} {version}" for name, version in program.library_versions()), "small"
        )
        self.add_page_button(
            tr("Licenses"), lambda: show_text_box(self, tr("Licenses"), program.licence_texts())
        )
        self.add_heading(tr("Installation"))
        self._findings = QVBoxLayout()
        self.add_page_layout(self._findings)
        self.add_page_button(
            tr("Copy results"), lambda: QGuiApplication.clipboard().setText(self._text)
        )
        self._text = ""
        doing.run_in_background(
            program.examine_installation(), then=self._show_findings, owner=self
        )

    def _show_findings(self, findings: Sequence[DoctorFinding]) -> None:
        lines: list[str] = []
        for finding in findings:
            sign = FINDING_SIGNS.get(finding.state, "")
            state = translate_sentences(finding.says)
            remedy = translate_sentences(finding.remedy)
            what = translate_sentences(finding.what)
            shown = tr("{what}: {says}", what=what, says=join_sentences(state, remedy))
            look = "small"
            if finding.state == "bad":
                look = "danger"
            label = build_plain_label(f"{sign} {shown}".strip(), look, self.page_content)
            self._findings.addWidget(label)
            # The copied report is in English, because others will read it.
            lines.append(f"{sign} {finding.what}: {finding.says} {finding.remedy}".strip())
        self._text = "\n".join(lines)
