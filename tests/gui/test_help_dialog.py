from __future__ import annotations

import re

from PySide6.QtCore import QLocale, Qt, QUrl
from PySide6.QtGui import QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from helix_desktop.gui import search_suggestions
from helix_desktop.gui.frame.command_palette import match_palette_items
from helix_desktop.gui.help_dialog import HelpDialog
from helix_desktop.gui.help_search import CONTENTS, find_help_pages, list_help_contents
from helix_desktop.gui.theme import Theme
from helix_desktop.resources import resources_folder


def test_every_page_is_listed_and_can_be_found_and_read(theme: Theme) -> None:
    pages = {path.name for path in (resources_folder() / "help").glob("*.md")} - {CONTENTS}
    assert {entry.file for entry in list_help_contents()} == pages
    opened: list[str] = []
    (found,) = match_palette_items(
        search_suggestions.suggest_help_pages(opened.append), "keys privacy help"
    )
    found.act()
    assert not any(
        "`" in item.text for item in search_suggestions.suggest_help_pages(opened.append)
    )
    window = QWidget()
    dialog = HelpDialog(opened[0], window)
    assert "keyring" in dialog.page.toPlainText()
    assert "](" not in dialog.page.toPlainText()


def test_links_lead_to_other_pages_and_back(theme: Theme) -> None:
    window = QWidget()
    dialog = HelpDialog(CONTENTS, window)
    back = next(button for button in dialog.findChildren(QPushButton) if button.text() == "Back")
    assert not back.isEnabled()
    dialog.page.anchorClicked.emit(QUrl("glossary.md"))
    assert dialog.page.source().fileName() == "glossary.md"
    assert "Glossary" in dialog.page.toPlainText()[:20]
    back.click()
    assert dialog.page.source().fileName() == CONTENTS
    assert "First steps" in dialog.page.toPlainText()


def test_escape_closes_the_help_wherever_the_keyboard_is(theme: Theme) -> None:
    """With a list of found pages, only the list closed."""
    for typed in ("", "undo", "qqqqq"):
        window = QWidget()
        window.show()
        dialog = HelpDialog(CONTENTS, window)
        dialog.show()
        assert QTest.qWaitForWindowActive(dialog)
        QTest.keyClicks(dialog.search, typed)
        target = QApplication.activePopupWidget() or QApplication.focusWidget()
        assert target is not None
        QTest.keyClick(target, Qt.Key.Key_Escape)
        assert not dialog.isVisible(), typed
        assert QApplication.activePopupWidget() is None
        window.close()


def test_the_contents_have_groups_that_begin_with_the_first_steps() -> None:
    contents = (resources_folder() / "help" / CONTENTS).read_text("utf-8")
    groups = contents.split("\n## ")[1:]
    assert len(groups) == 8
    for group in groups:
        assert 2 <= group.count("\n- [") <= 5, group
    assert "(start.md)" in groups[0]
    assert "(figures.md)" in groups[-1]


def test_pages_for_newcomers_have_the_words_of_the_window() -> None:
    """They said fold, handover document and journal, which the window never says. A word of the
    settings files may stand once in brackets.
    """
    inner = re.compile(
        r"\b(fold(s|ed|ing)?|handovers?|journals?|entry|entries|polic(y|ies))\b", re.IGNORECASE
    )
    for name in ("start", "how", "bring-in", "context", "cache", "changes", "tools", "keys"):
        text = (resources_folder() / "help" / f"{name}.md").read_text("utf-8")
        words = re.sub(r"```.+?```|`[^`]+`", "", text, flags=re.DOTALL)
        words = words.replace("(*handover* in settings files)", "")
        assert [found[0] for found in inner.finditer(words)] == [], name


def test_a_page_opens_at_the_words_that_were_searched_for(theme: Theme) -> None:
    """It opened at its top, and the words stood somewhere on the second screen."""
    window = QWidget()
    dialog = HelpDialog(CONTENTS, window)
    dialog.show()
    dialog._list_found_pages("renamed hunk")
    changes = next(finding for finding in dialog._findings if finding.file == "changes.md")
    dialog._open_found_page(changes.line)
    marked = [selection.cursor.selectedText() for selection in dialog.page.extraSelections()]
    assert {"renamed", "hunk"} <= {word.casefold() for word in marked}
    (first, *_) = dialog.page.extraSelections()
    place = dialog.page.cursorRect(first.cursor)
    assert dialog.page.viewport().rect().intersects(place)
    assert dialog.page.verticalScrollBar().value() > 0


def test_the_help_is_searched_by_keyboard_alone(theme: Theme) -> None:
    window = QWidget()
    dialog = HelpDialog(CONTENTS, window)
    dialog.show()
    dialog.activateWindow()
    assert dialog.focusWidget() is dialog.search
    QTest.keyClicks(dialog.search, "glossary")
    assert dialog._found_lines.stringList()[0].startswith("Glossary: ")
    QTest.keyClick(dialog.search, Qt.Key.Key_Return)
    assert dialog.isVisible()
    assert dialog.page.source().fileName() == "glossary.md"
    assert (dialog.focusWidget(), dialog.search.text()) == (dialog.page, "")
    QTest.keyClick(dialog.page, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert dialog.focusWidget() is dialog.search
    QTest.keyClicks(dialog.search, "sandbox")
    popup = dialog.search.completer().popup()
    assert popup is not None
    assert popup.isVisible()
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Return):
        QTest.keyClick(popup, key)
    assert dialog.page.source().fileName() == find_help_pages("sandbox")[1].file


def test_a_german_window_has_german_help_and_says_which_pages_are_in_english(theme: Theme) -> None:
    before = QLocale()
    QLocale.setDefault(QLocale("de_AT"))
    try:
        window = QWidget()
        dialog = HelpDialog(CONTENTS, window)
        assert "Erste Schritte" in dialog.page.toPlainText()
        assert list_help_contents()[0].file == "start.md"
        assert find_help_pages("schlüsselbund")[0].file == "keys.md"
        dialog.page.anchorClicked.emit(QUrl("start.md"))
        assert (dialog.page.source().fileName(), dialog.in_english.isHidden()) == ("start.md", True)
        assert "pictures/chat.png" in dialog.page.toHtml()
        dialog.page.anchorClicked.emit(QUrl("glossary.md"))
        assert "Glossary" in dialog.page.toPlainText()[:20]
        assert not dialog.in_english.isHidden()
        dialog.page.backward()
        assert dialog.in_english.isHidden()
    finally:
        QLocale.setDefault(before)
    dialog = HelpDialog("glossary.md", window)
    assert dialog.in_english.isHidden()


def test_pictures_fit_into_the_window_and_paragraphs_stand_apart(theme: Theme) -> None:
    window = QWidget()
    dialog = HelpDialog("cache.md", window)
    dialog.show()
    dialog.page.setSource(QUrl("glossary.md"), QTextDocument.ResourceType.MarkdownResource)
    for width in (880, 600):
        dialog.page.backward()
        dialog.resize(width, 600)
        assert dialog.page.source().fileName() == "cache.md"
        assert dialog.page.horizontalScrollBar().maximum() == 0
        assert dialog.page.document().begin().next().blockFormat().bottomMargin() > 0


def test_a_found_page_shows_the_sentence_with_the_words(theme: Theme) -> None:
    """The defect: only titles were listed, those first in which "the" is most frequent."""
    lines = [finding.line for finding in find_help_pages("stop the agent")]
    sentences = [line.casefold() for line in lines]
    assert any("press esc" in sentence for sentence in sentences[:2])
    assert not any("](" in line or "**" in line for line in lines)
