from __future__ import annotations

from PySide6.QtCore import QUrl
from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.gui import search_suggestions
from helix_desktop.gui.frame.command_palette import match_palette_items
from helix_desktop.gui.help_dialog import CONTENTS, HelpDialog, list_help_contents
from helix_desktop.gui.theme import Theme
from helix_desktop.resources import resources_folder


def test_every_page_is_listed_and_can_be_found_and_read(theme: Theme) -> None:
    pages = {path.name for path in (resources_folder() / "help").glob("*.md")} - {CONTENTS}
    assert {file for file, _, _ in list_help_contents()} == pages
    opened: list[str] = []
    (found,) = match_palette_items(search_suggestions.suggest_help_pages(opened.append), "keys privacy help")
    found.act()
    assert not any("`" in item.text for item in search_suggestions.suggest_help_pages(opened.append))
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
