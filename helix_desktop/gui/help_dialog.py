"""The help pages that ship with the program, in a window of their own: Qt shows their Markdown."""

import functools
import re

from PySide6.QtCore import QUrl
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QTextBrowser, QWidget

from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.layouts import build_column, build_row
from helix_desktop.gui.shared.widgets import TransientDialog, build_push_button
from helix_desktop.gui.translation import tr
from helix_desktop.resources import resources_folder

_CONTENTS_LINE = re.compile(r"- \[([^]]+)\]\((\w[\w-]*\.md)\): (.+)")
CONTENTS = "index.md"


@functools.cache
def list_help_contents() -> tuple[tuple[str, str, str], ...]:
    """File, title and subject of each page, in the order of the contents."""
    text = (resources_folder() / "help" / CONTENTS).read_text("utf-8")
    return tuple((file, title, about) for title, file, about in _CONTENTS_LINE.findall(text.replace("`", "")))


class HelpDialog(TransientDialog):
    def __init__(self, file: str, parent: QWidget) -> None:
        super().__init__(tr("Help"), parent, 880, 720)
        self.page = QTextBrowser(self)
        self.page.setOpenLinks(False)
        self.page.setAccessibleName(tr("Help"))
        self.page.anchorClicked.connect(lambda link: self._open_page(self.page.source().resolved(link)))
        back = build_push_button(tr("Back"), self, self.page.backward)
        back.setEnabled(False)
        self.page.backwardAvailable.connect(back.setEnabled)
        contents = build_push_button(tr("Contents"), self, lambda: self.open_help_page(CONTENTS))
        buttons = build_row(back, contents, 1, build_push_button(tr("Close"), self, self.accept, "primary"))
        build_column(self.page, buttons, owner=self, margins=(20, 16, 20, 16))
        self.open_help_page(file)

    def open_help_page(self, file: str) -> None:
        self._open_page(QUrl.fromLocalFile(str(resources_folder() / "help" / file)))

    def _open_page(self, page: QUrl) -> None:
        if page.isLocalFile():
            self.page.setSource(page, QTextDocument.ResourceType.MarkdownResource)
            self.page.document().setDocumentMargin(16)
        else:
            open_in_browser(page.toString())
