"""What stands in the window before anything is opened says no word that only its makers know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QAbstractButton, QLabel, QMenu

from helix_desktop.gui import search_suggestions, translation
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.translation import read_shown_names
from tests.gui.fake_setup import FakeInstallation, FakeSetup

# Words that only the makers of this program know, in each language.
INNER_WORDS = {
    "en": r"\b(un)?folds?\b|\bfolded\b|\bmarkers?\b|\bobserv(e|ations?)\b|\breflect(ions?)?\b|\blayered\b|\bhandovers?\b|\bpolic(y|ies)\b|\bjournals?\b|\bentr(y|ies)\b|\binspector\b|\bbubblewrap\b|\brecall(s|ed)?\b",
    "de": r"\bFalt|\bMarker\b|\bBeobachtung|\bReflexion|\bÜbergabe|\bRichtlinie|\bJournal|\bEintr(ag|äge)|\bInspektor\b|\bbubblewrap\b",
    "zh_CN": "折叠标记|标记符|观察记录|反思|分层|交接|策略|日志条目|条目|检查器|bubblewrap|调回",
}
# Names in code, such as `edit_file`, `keep_days` and `weather__weather`.
CODE_NAME = re.compile(r"\b[a-z]+(_+[a-z]+)+\b")
# Tables of `shown_names.json` that the first level shows.
TABLES = (
    "page of the settings",
    "kinds of items",
    "preset",
    "state of a task",
    "state of a conversation",
    "action of a workspace",
    "filter of entries",
    "fold on request",
    "model of a role",
    "message that was found",
    "page that was found",
    "stored output that was found",
    "writer of a stored output",
    "what a tool does",
)


def texts_of_window(window: MainWindow) -> Iterator[str]:
    for declared in window.window_actions.list_searchable_actions():
        yield declared.title
    for action in window.findChildren(QAction):
        yield action.text()
    for menu in window.findChildren(QMenu):
        yield menu.title()
    for item in search_suggestions.suggest_help_pages(str):
        yield item.note
    for widget in window.findChildren(QAbstractButton) + window.findChildren(QLabel):
        if widget.isVisible():
            yield widget.text()
    for name in search_suggestions.COMMANDS:
        yield f"/{name}"


def texts_of_settings(window: MainWindow) -> Iterator[str]:
    dialog = SettingsDialog(window, FakeSetup(), FakeInstallation())
    for name in dialog._page_factories:
        page = dialog._build_page(name)
        for widget in page.findChildren(QAbstractButton) + page.findChildren(QLabel):
            if not widget.isHidden():
                yield widget.text()


@pytest.fixture
def first_level(window: MainWindow) -> set[str]:
    texts = {*texts_of_window(window), *texts_of_settings(window)}
    for table in TABLES:
        texts.update(read_shown_names()[table].values())
    assert {"Show Cache", "/dated-notes", "Old outputs first", "Phone"} <= texts
    return texts


@pytest.mark.parametrize("language", INNER_WORDS)
def test_the_first_level_has_no_inner_words(first_level: set[str], language: str) -> None:
    catalogue: dict[str, str] = {}
    if language != "en":
        file = translation.translation_catalogue_path(language)
        catalogue = json.loads(file.read_text("utf-8"))
    inner_word = re.compile(INNER_WORDS[language], re.IGNORECASE)
    shown_texts = {catalogue.get(text, text) for text in first_level}
    with_inner_words: list[str] = []
    for text in sorted(shown_texts):
        if inner_word.search(text) or CODE_NAME.search(text):
            with_inner_words.append(text)
    assert with_inner_words == []
