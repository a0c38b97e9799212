"""The help pages that ship with the program, in a separate window. Qt renders their Markdown."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QLocale, QObject, QStringListModel, Qt, QUrl
from PySide6.QtGui import (
    QKeyEvent,
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

from helix_desktop.gui.common.found_words import find_needle_spans
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_line_edit,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.help_search import (
    CONTENTS,
    HelpFinding,
    find_help_file,
    find_help_pages,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import tr
from helix_desktop.resources import resources_folder

PICTURE = "\ufffc"  # The character that represents a picture in a text.
PARAGRAPH_SPACING = 6  # The space below each paragraph, in pixels.


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
        """Scrolls to the first paragraph with most of the words (in lower case), and marks them."""
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


def open_help(parent: QWidget, file: str = CONTENTS, words: Sequence[str] = ()) -> None:
    """Opens a page, at the words that were searched for."""
    dialog = HelpDialog(file, parent)
    dialog.show()
    dialog.page.show_words(words)


class HelpDialog(TransientDialog):
    def __init__(self, file: str, parent: QWidget) -> None:
        super().__init__(tr("Help"), parent, 880, 720)
        search_hint = tr("Search the help")
        self.search = build_line_edit(search_hint, search_hint, self)
        self.search.setClearButtonEnabled(True)

        self._found_lines = QStringListModel(self)
        self._findings: Sequence[HelpFinding] = ()
        self._nothing_found = build_plain_label("", "muted", self)
        self._nothing_found.hide()
        self.search.setCompleter(self._build_completer())
        self.search.textEdited.connect(self._list_found_pages)
        self.search.textChanged.connect(self._hide_failure_without_words)
        self.search.returnPressed.connect(self._open_first_found_page)
        QShortcut(QKeySequence.StandardKey.Find, self, self.search.setFocus)

        self.page = HelpPage(self)
        only_in_english = tr("This page is only available in English.")
        self.in_english = build_plain_label(only_in_english, "muted", self)
        self.page.sourceChanged.connect(self._say_if_page_is_not_translated)
        self.page.anchorClicked.connect(self._follow_link)

        back = build_push_button(tr("Back"), self, self.page.backward, enabled=False)
        self.page.backwardAvailable.connect(back.setEnabled)
        contents = build_push_button(tr("Contents"), self, self._open_contents)
        close = build_push_button(tr("Close"), self, self.accept, "primary")
        buttons = build_row(back, contents, 1, close)
        build_column(
            self.search,
            self._nothing_found,
            self.in_english,
            self.page,
            buttons,
            owner=self,
            margins=(20, 16, 20, 16),
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
            popup.installEventFilter(self)
        completer.activated.connect(self._open_found_page)
        return completer

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Lets Escape close the help at once, also while the list of found pages is open: a list
        that closes alone leaves a window of which the key seems not to work.
        """
        is_key_press = event.type() == QEvent.Type.KeyPress
        if is_key_press and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            self.reject()
            return True
        return super().eventFilter(watched, event)

    def _list_found_pages(self, query: str) -> None:
        self._findings = find_help_pages(query)
        self._found_lines.setStringList([finding.line for finding in self._findings])
        self._nothing_found.setText(
            tr("Nothing was found for “{words}”. Try other words.", words=query.strip())
        )
        self._nothing_found.setVisible(not self._findings)

    def _hide_failure_without_words(self, query: str) -> None:
        if not query:
            self._nothing_found.hide()

    def _open_first_found_page(self) -> None:
        if self._findings:
            self._open_finding(self._findings[0])

    def _open_contents(self) -> None:
        self.open_help_page(CONTENTS)

    def _open_found_page(self, line: str) -> None:
        for finding in self._findings:
            if finding.line == line:
                self._open_finding(finding)
                return

    def _open_finding(self, finding: HelpFinding) -> None:
        self.search.clear()
        self.open_help_page(finding.file)
        self.page.show_words(finding.words)
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
