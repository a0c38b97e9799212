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

from helix_desktop.fast_dataclass import dataclass
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
    translated = pages / QLocale().name()[:2] / file
    if translated.is_file():
        return translated
    return pages / file


def list_help_contents() -> tuple[tuple[str, str, str], ...]:
    """Returns the file, the title and what each page is about."""
    text = find_help_file(CONTENTS).read_text("utf-8").replace("`", "")
    contents: list[tuple[str, str, str]] = []
    for title, file, about in _CONTENTS_LINE.findall(text):
        contents.append((file, title, about))
    return tuple(contents)


def find_help_pages(words: str) -> dict[str, str]:
    """Finds pages with all these words: first those with the words in their title, then
    by number of hits.
    """
    wanted = words.casefold().split()
    pages: list[FoundHelpPage] = []
    for file, title, about in list_help_contents():
        line = f"{title}: {about}"
        text = find_help_file(file).read_text("utf-8").casefold()
        # The words may all be in the title, in the line of the contents, or only in the text.
        for rank, place in enumerate((title.casefold(), line.casefold(), text)):
            if all(word in place for word in wanted):
                hits = sum(text.count(word) for word in wanted)
                pages.append(FoundHelpPage(line, file, rank, hits))
                break
    pages.sort(key=lambda page: (page.rank, -page.hits))
    return {page.line: page.file for page in pages}


@dataclass(frozen=True, slots=True)
class FoundHelpPage:
    """`line`: its line in the contents. `rank`: 0 if its title has all words."""

    line: str
    file: str
    rank: int
    hits: int


class HelpPage(QTextBrowser):
    """A page of the help. Pictures are never wider than the page, and paragraphs have
    space between them.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, openLinks=False)
        self.setAccessibleName(tr("Help"))
        # Going back emits this signal, too.
        self.sourceChanged.connect(self._set_margins_and_picture_widths)

    def _set_margins_and_picture_widths(self) -> None:
        self.document().setDocumentMargin(16)
        block = self.document().begin()
        while block.isValid():
            shape = block.blockFormat()
            if not shape.hasProperty(QTextFormat.Property.BlockCodeFence):
                shape.setBottomMargin(PARAGRAPH_SPACING)
                QTextCursor(block).setBlockFormat(shape)
            block = block.next()
        cursor = self.document().find(PICTURE)
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
        popup = choices.popup()
        if popup is not None:
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
        if file == CONTENTS:
            self.search.setFocus()
        else:
            self.page.setFocus()

    def _open_found_page(self, line: str) -> None:
        file = find_help_pages("").get(line)
        if file:
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
