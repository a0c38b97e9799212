"""About: versions, licences, and what the doctor says."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QVBoxLayout

from helix_desktop import __version__
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import in_a_row, said
from helix_desktop.gui.questions import tell_text
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Finding, Installation
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.words import tr

SIGNS = {"good": "✓", "note": "•", "bad": "✕"}


class AboutPage(Page):
    def __init__(self, program: Installation, doing: Doing) -> None:
        super().__init__(tr("About"))
        self.sentence(f"Helix Desktop {__version__}", "")
        self.sentence(", ".join(f"{name} {version}" for name, version in program.versions()), "small")
        licences = self.button(tr("Licences"))
        licences.clicked.connect(lambda: tell_text(self, tr("Licences"), program.licences()))
        self.heading(tr("Installation"))
        self._findings = QVBoxLayout()
        self.add_layout(self._findings)
        self._copy = self.button(tr("Copy results"))
        self._copy.clicked.connect(self._copied)
        self._text = ""
        doing.do(program.examine(), name="examine the installation", then=self._show, owner=self)

    def _show(self, findings: Sequence[Finding]) -> None:
        lines = []
        for finding in findings:
            sign = SIGNS.get(finding.state, "")
            told = in_a_row(said(finding.says), said(finding.remedy))
            shown = tr("{what}: {says}", what=said(finding.what), says=told)
            look = "danger" if finding.state == "bad" else "small"
            self._findings.addWidget(plain_label(f"{sign} {shown}".strip(), look, self.inside))
            lines.append(f"{sign} {finding.what}: {finding.says} {finding.remedy}".strip())  # a report is English
        self._text = "\n".join(lines)

    def _copied(self) -> None:
        QGuiApplication.clipboard().setText(self._text)
