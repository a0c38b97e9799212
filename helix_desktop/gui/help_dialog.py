"""The help pages that ship with the program, in a separate window. Qt renders their Markdown."""

import re
from pathlib import Path

from PySide6.QtCore import QLocale, QStringListModel, QUrl
from PySide6.QtGui import (
    QKeySequence,
    QShortcut,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextLength,
)
from PySide6.QtWidgets import QCompleter, QTextBrowser, QWidget

from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_line_edit,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import tr
from helix_desktop.resources import resources_folder

_CONTENTS_LINE = re.compile(r"- \[([^]]+)\]\((\w[\w-]*\.md)\)(?:: |：)(.+)")
CONTENTS = "index.md"
PICTURE = "\ufffc"  # The character that represents a picture in a text.
PARAGRAPH_SPACING = 6  # The space below each paragraph, in pixels.


def find_help_file(file: str) -> Path:
    """Returns a page in the window's language, or else in English."""
    pages = resources_folder() / "help"
    own = pages / QLocale().name()[:2] / file
    return own if own.is_file() else pages / file


def list_help_contents() -> tuple[tuple[str, str, str], ...]:
    text = find_help_file(CONTENTS).read_text("utf-8")
    return tuple(
        (file, title, about) for title, file, about in _CONTENTS_LINE.findall(text.replace("`", ""))
    )


def find_help_pages(words: str) -> dict[str, str]:
    """Finds pages with all these words: first those with the words in their title, then
    by number of hits.
    """
    wanted, ranked = words.casefold().split(), []
    for file, title, about in list_help_contents():
        line, text = f"{title}: {about}", find_help_file(file).read_text("utf-8").casefold()
        places = [
            all(word in place for word in wanted)
            for place in (title.casefold(), line.casefold(), text)
        ]
        if any(places):
            ranked.append((places.index(True), -sum(map(text.count, wanted)), line, file))
    return {line: file for *_, line, file in sorted(ranked, key=lambda page: page[:2])}


class HelpPage(QTextBrowser):
    """A page of the help. Pictures are never wider than the page, and paragraphs have
    space between them.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, openLinks=False)
        self.setAccessibleName(tr("Help"))
        self.sourceChanged.connect(
            self._set_margins_and_picture_widths
        )  # Going back emits this signal, too.

    def _set_margins_and_picture_widths(self) -> None:
        self.document().setDocumentMargin(16)
        block, cursor = self.document().begin(), self.document().find(PICTURE)
        while block.isValid():
            shape = block.blockFormat()
            if not shape.hasProperty(QTextFormat.Property.BlockCodeFence):
                shape.setBottomMargin(PARAGRAPH_SPACING)
                QTextCursor(block).setBlockFormat(shape)
            block = block.next()
        while not cursor.isNull():
            picture = cursor.charFormat().toImageFormat()
            picture.setMaximumWidth(QTextLength(QTextLength.Type.PercentageLength, 100))
            cursor.setCharFormat(picture)
            cursor = self.document().find(PICTURE, cursor)


def open_help(parent: QWidget, file: str = CONTENTS) -> None:
    HelpDialog(file, parent).show()


class HelpDialog(TransientDialog):
    def __init__(self, file: str, parent: QWidget) -> None:
        super().__init__(tr("Help"), parent, 880, 720)
        self.search = build_line_edit(tr("Search the help"), tr("Search the help"), self)
        self.search.setClearButtonEnabled(True)
        self._found = QStringListModel(self)
        choices = QCompleter(self._found, self)
        if (popup := choices.popup()) is not None:
            popup.setProperty("look", "bordered")
        choices.setCompletionMode(QCompleter.CompletionMode.UnfilteredPopupCompletion)
        choices.activated.connect(self._open_found_page)
        self.search.setCompleter(choices)
        self.search.textEdited.connect(
            lambda words: self._found.setStringList(list(find_help_pages(words)))
        )
        self.search.returnPressed.connect(
            lambda: self._open_found_page(next(iter(find_help_pages(self.search.text())), ""))
        )
        QShortcut(QKeySequence.StandardKey.Find, self, self.search.setFocus)
        self.page = HelpPage(self)
        self.in_english = build_plain_label(
            tr("This page is only available in English."), "muted", self
        )
        self.page.sourceChanged.connect(self._say_if_page_is_not_translated)
        self.page.anchorClicked.connect(
            lambda link: self._open_page_or_browser(self.page.source().resolved(link))
        )
        back = build_push_button(tr("Back"), self, self.page.backward, enabled=False)
        self.page.backwardAvailable.connect(back.setEnabled)
        contents = build_push_button(tr("Contents"), self, lambda: self.open_help_page(CONTENTS))
        buttons = build_row(
            back, contents, 1, build_push_button(tr("Close"), self, self.accept, "primary")
        )
        build_column(
            self.search, self.in_english, self.page, buttons, owner=self, margins=(20, 16, 20, 16)
        )
        self.open_help_page(file)
        (self.search if file == CONTENTS else self.page).setFocus()

    def _open_found_page(self, line: str) -> None:
        if file := find_help_pages("").get(line):
            self.search.clear()
            self.open_help_page(file)
            self.page.setFocus()

    def open_help_page(self, file: str) -> None:
        page = QUrl.fromLocalFile(str(find_help_file(file)))
        self.page.setSource(page, QTextDocument.ResourceType.MarkdownResource)

    def _open_page_or_browser(self, page: QUrl) -> None:
        if page.isLocalFile():  # A translated page links to pages that may not be translated.
            self.open_help_page(page.fileName())
        else:
            open_in_browser(page.toString())

    def _say_if_page_is_not_translated(self, page: QUrl) -> None:
        is_english = Path(page.toLocalFile()).parent == resources_folder() / "help"
        self.in_english.setVisible(is_english and QLocale().language() != QLocale.Language.English)
