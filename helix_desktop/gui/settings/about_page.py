"""About: versions, licences, and the findings of the doctor."""

from collections.abc import Sequence

from PySide6.QtWidgets import QVBoxLayout

from helix_desktop import __version__
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.copy_with_sign import copy_and_say_so
from helix_desktop.gui.common.widgets import build_plain_label
from helix_desktop.gui.question_dialogs import show_text_box
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.settings.settings_page import RunWhenSeen, SettingsPage
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import DoctorFinding

FINDING_SIGNS = {"good": "✓", "note": "•", "bad": "✕"}


class AboutPage(SettingsPage):
    def __init__(self, program: Installation, runner: BackgroundRunner) -> None:
        super().__init__(tr("About"))
        self._program = program
        self._report = ""
        self.add_sentence(f"Helix Desktop {__version__}", "")
        self.add_page_button(tr("Licenses"), self._show_licences)
        self.add_heading(tr("Installation"))
        self._findings = QVBoxLayout()
        self.add_page_layout(self._findings)
        self._copy_button = self.add_page_button(tr("Copy results"), self._copy_report)
        self._runner = runner
        # The checks load what counts tokens, which held up the whole window when it was opened.
        self.add_page_widget(
            RunWhenSeen(self.page_content, self._examine_installation_in_background)
        )

    def _examine_installation_in_background(self) -> None:
        examining = self._program.examine_installation()
        self._runner.run_in_background(examining, then=self._show_findings, owner=self)

    def _show_licences(self) -> None:
        show_text_box(self, tr("Licenses"), self._program.licence_texts())

    def _copy_report(self) -> None:
        copy_and_say_so(self._report, self._copy_button)

    def _show_findings(self, findings: Sequence[DoctorFinding]) -> None:
        lines: list[str] = []
        good_count = sum(finding.state == "good" for finding in findings)
        if good_count == len(findings):
            good_words = format_count(
                good_count, "{n} check found no problem.", "{n} checks found no problem."
            )
        else:
            good_words = tr(
                "{good} of {all} checks found no problem. Below is what the rest found:",
                good=good_count,
                all=len(findings),
            )
        self._findings.addWidget(build_plain_label(good_words, "small", self.page_content))
        for finding in findings:
            sign = FINDING_SIGNS.get(finding.state, "")
            subject = translate_sentences(finding.what)
            text = tr("{what}: {says}", what=subject, says=translate_finding(finding))
            look = "small"
            if finding.state == "bad":
                look = "danger"
            # What is as it should be is in the copied report, together with all versions.
            if finding.state != "good":
                label = build_plain_label(f"{sign} {text}".strip(), look, self.page_content)
                self._findings.addWidget(label)
            # The copied report is in English, because others will read it.
            line = f"{sign} {finding.what}: {finding.says} {finding.remedy}"
            lines.append(line.strip())
        self._report = "\n".join(lines)


def translate_finding(finding: DoctorFinding) -> str:
    """Returns what a check says and what to do about it, without what it is about."""
    state = translate_sentences(finding.says)
    remedy = translate_sentences(finding.remedy)
    return join_sentences(state, remedy)
