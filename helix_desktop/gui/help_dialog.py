"""The help pages that ship with the program, in a separate window. Qt renders their Markdown."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from PySide6.QtCore import QLocale, QStringListModel, QUrl
from PySide6.QtGui import (
    QKeySequence,
    QShortcut,
    QTextBlock,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextLength,
)
from PySide6.QtWidgets import QCompleter, QTextBrowser, QTextEdit, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.found_words import find_needle_spans
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
_MARKDOWN_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_MARKDOWN_SIGNS = re.compile(r"[*`|]|^\s*(?:[-+>]|\d+\.)\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
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


@dataclass(frozen=True, slots=True)
class HelpEntry:
    """A line of the help's contents: a page's file, its title, and what it is about."""

    file: str
    title: str
    summary: str

    @property
    def line(self) -> str:
        return f"{self.title}: {self.summary}"


def list_help_contents() -> tuple[HelpEntry, ...]:
    text = find_help_file(CONTENTS).read_text("utf-8").replace("`", "")
    entries: list[HelpEntry] = []
    for title, file, summary in _CONTENTS_LINE.findall(text):
        entries.append(HelpEntry(file, title, summary))
    return tuple(entries)


def find_help_pages(query: str) -> dict[str, str]:
    """Finds pages with all words of the query, and returns their files by their lines. A line is
    a page's title and the sentence that has the words, or else what the page is about.

    Pages with the words in their title come first, then those with the words in what they are
    about, in a heading or as they were typed, in one sentence, and in their text alone. Among
    these, those whose sentence has the words as they were typed, then those with the most hits.
    """
    words = query.casefold().split()
    pages: list[FoundHelpPage] = []
    for entry in list_help_contents():
        text = find_help_file(entry.file).read_text("utf-8")
        found_page = _search_help_page(entry, text, words)
        if found_page is not None:
            pages.append(found_page)
    pages.sort(key=lambda page: page.hits, reverse=True)
    phrase = " ".join(words)
    pages.sort(key=lambda page: phrase not in page.passage.casefold())
    pages.sort(key=lambda page: page.rank)
    return {page.line: page.entry.file for page in pages}


@dataclass(frozen=True, slots=True)
class FoundHelpPage:
    """`passage`: the sentence with the words, or nothing where no sentence has all of them."""

    entry: HelpEntry
    rank: int
    hits: int
    passage: str

    @property
    def line(self) -> str:
        if self.passage:
            return f"{self.entry.title}: {self.passage}"
        return self.entry.line


def _search_help_page(entry: HelpEntry, text: str, words: Sequence[str]) -> FoundHelpPage | None:
    if not _has_all_words(f"{entry.line} {text}", words):
        return None
    folded_text = text.casefold()
    hits = 0
    for word in words:
        hits += folded_text.count(word)
    passage = ""
    if words:
        passage = _find_sentence(text, words)
    rank = _rank_help_page(entry, text, words, passage)
    return FoundHelpPage(entry, rank, hits, passage)


def _rank_help_page(entry: HelpEntry, text: str, words: Sequence[str], passage: str) -> int:
    """Returns 0 for the pages that come first, and 4 for those that come last."""
    if _has_all_words(entry.title, words):
        return 0
    if _has_all_words(entry.line, words):
        return 1
    if not passage:
        return 4
    if " ".join(words) in passage.casefold():
        return 2
    for line in text.splitlines():
        if line.startswith("#") and _has_all_words(line, words):
            return 2
    return 3


def _has_all_words(text: str, words: Sequence[str]) -> bool:
    folded_text = text.casefold()
    return all(word in folded_text for word in words)


def _find_sentence(text: str, words: Sequence[str]) -> str:
    """Returns the shortest sentence with all words, without the signs of Markdown."""
    shortest = ""
    # A name alone with a full stop, such as "Sandbox.", tells the reader nothing.
    least_length = len(" ".join(words)) + 2
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        plain_line = _MARKDOWN_SIGNS.sub("", _MARKDOWN_LINK.sub(r"\1", line))
        for sentence in _SENTENCE_END.split(plain_line):
            is_shortest = not shortest or len(sentence) < len(shortest)
            says_more = len(sentence) > least_length
            if says_more and is_shortest and _has_all_words(sentence, words):
                shortest = sentence.strip()
    return shortest


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

    def show_words(self, words: Sequence[str]) -> None:
        """Scrolls to the first paragraph with most of the words, and marks them there."""
        self.setExtraSelections([])
        best_block: QTextBlock | None = None
        most_found = 0
        block = self.document().begin().next()  # The first one is the page's title.
        while block.isValid():
            text = block.text().casefold()
            found = sum(word in text for word in words)
            if found > most_found:
                best_block = block
                most_found = found
            block = block.next()
        if best_block is None:
            return
        self._mark_words_of_block(best_block, words)
        block_top = self.document().documentLayout().blockBoundingRect(best_block).top()
        room_above = self.viewport().height() / 4  # For the heading that precedes it.
        self.verticalScrollBar().setValue(round(block_top - room_above))

    def _mark_words_of_block(self, block: QTextBlock, words: Sequence[str]) -> None:
        selections: list[QTextEdit.ExtraSelection] = []
        for start, length in find_needle_spans(words, block.text()):
            selection = QTextEdit.ExtraSelection()
            cursor = QTextCursor(block)
            cursor.setPosition(block.position() + start)
            cursor.setPosition(block.position() + start + length, QTextCursor.MoveMode.KeepAnchor)
            selection.cursor = cursor
            look = QTextCharFormat()
            look.setBackground(self.palette().highlight())
            look.setForeground(self.palette().highlightedText())
            selection.format = look
            selections.append(selection)
        self.setExtraSelections(selections)


def open_help(parent: QWidget, file: str = CONTENTS, words: str = "") -> None:
    """Opens a page, at the words that were searched for."""
    dialog = HelpDialog(file, parent)
    dialog.show()
    dialog.page.show_words(words.casefold().split())


class HelpDialog(TransientDialog):
    def __init__(self, file: str, parent: QWidget) -> None:
        super().__init__(tr("Help"), parent, 880, 720)
        self.search = build_line_edit(tr("Search the help"), tr("Search the help"), self)
        self.search.setClearButtonEnabled(True)

        self._found_lines = QStringListModel(self)
        self._searched_words: list[str] = []
        self._file_by_found_line: Mapping[str, str] = {}
        self.search.setCompleter(self._build_completer())
        self.search.textEdited.connect(self._list_found_pages)
        self.search.returnPressed.connect(self._open_first_found_page)
        QShortcut(QKeySequence.StandardKey.Find, self, self.search.setFocus)

        self.page = HelpPage(self)
        self.in_english = build_plain_label(
            tr("This page is only available in English."), "muted", self
        )
        self.page.sourceChanged.connect(self._say_if_page_is_not_translated)
        self.page.anchorClicked.connect(self._follow_link)

        back = build_push_button(tr("Back"), self, self.page.backward, enabled=False)
        self.page.backwardAvailable.connect(back.setEnabled)
        contents = build_push_button(tr("Contents"), self, self._open_contents)
        close = build_push_button(tr("Close"), self, self.accept, "primary")
        buttons = build_row(back, contents, 1, close)
        build_column(
            self.search, self.in_english, self.page, buttons, owner=self, margins=(20, 16, 20, 16)
        )

        self.open_help_page(file)
        if file == CONTENTS:
            self.search.setFocus()
        else:
            self.page.setFocus()

    def _build_completer(self) -> QCompleter:
        """Builds the list of found pages below the search field."""
        completer = QCompleter(self._found_lines, self)
        # The list has only what was found, also where the words are not in its lines.
        completer.setCompletionMode(QCompleter.CompletionMode.UnfilteredPopupCompletion)
        popup = completer.popup()
        if popup is not None:
            popup.setProperty("look", "bordered")
        completer.activated.connect(self._open_found_page)
        return completer

    def _list_found_pages(self, query: str) -> None:
        self._searched_words = query.casefold().split()
        self._file_by_found_line = find_help_pages(query)
        self._found_lines.setStringList(list(self._file_by_found_line))

    def _open_first_found_page(self) -> None:
        first_line = next(iter(self._file_by_found_line), "")
        self._open_found_page(first_line)

    def _open_contents(self) -> None:
        self.open_help_page(CONTENTS)

    def _open_found_page(self, line: str) -> None:
        file = self._file_by_found_line.get(line)
        if file:
            self.search.clear()
            self.open_help_page(file)
            self.page.show_words(self._searched_words)
            self.page.setFocus()

    def open_help_page(self, file: str) -> None:
        page = QUrl.fromLocalFile(str(find_help_file(file)))
        self.page.setSource(page, QTextDocument.ResourceType.MarkdownResource)

    def _follow_link(self, link: QUrl) -> None:
        self._open_page_or_browser(self.page.source().resolved(link))

    def _open_page_or_browser(self, page: QUrl) -> None:
        if page.isLocalFile():  # A translated page links to pages that may not be translated.
            self.open_help_page(page.fileName())
        else:
            open_in_browser(page.toString())

    def _say_if_page_is_not_translated(self, page: QUrl) -> None:
        is_english = Path(page.toLocalFile()).parent == resources_folder() / "help"
        is_window_in_english = QLocale().language() == QLocale.Language.English
        self.in_english.setVisible(is_english and not is_window_in_english)
