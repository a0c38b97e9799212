"""People ask the help and the palette in their own words, and find the right page or command."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PySide6.QtCore import QLocale
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui import search_suggestions
from helix_desktop.gui.frame.command_palette import (
    PaletteAnswers,
    PaletteItem,
    match_palette_items,
    put_answers_first,
)
from helix_desktop.gui.help_dialog import HelpDialog
from helix_desktop.gui.help_search import CONTENTS, find_help_pages
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.question_matching import AnswerText, QuestionMatcher
from helix_desktop.gui.theme import Theme

# What people ask, and the beginnings of what may stand first (of the help or of an action).
ASKED: dict[str, tuple[str, ...]] = {
    "stop it": ("How do I… stop", "Stop the agent"),
    "what will this cost": ("How do I… know what it costs",),
    "how do I get it back": ("How do I… get something back",),
    "where did my old output go": ("How do I… find an old output",),
    "undo only this part": ("How do I… undo only a part",),
    "how much did it save me": ("How do I… see how much money", "What shortening saves"),
    "why was it shortened": ("How do I… find out why something was shortened",),
    "connect my agent": ("How do I… connect an agent", "Connect an agent"),
    "use my own model": ("How do I… use my own",),
    "send a file": ("How do I… send a file", "Attach files"),
    "make the text bigger": ("How do I… make the text", "Larger text"),
    "dark mode": ("How do I… make the text", "Dark theme"),
    "where is my data stored": ("How do I… find my data",),
    "it asks for permission all the time": (
        "How do I… be asked",
        "Choose the permission mode",
        "Tools and permissions",
    ),
    "can I use it offline": ("How do I… work offline",),
    "abort": ("How do I… stop", "Stop the agent"),
    "is this expensive": ("How do I… know what it costs",),
    "I deleted a conversation by mistake": ("How do I… get back a conversation",),
    "the agent broke my file": ("How do I… see which files", "Changes and undo"),
    "which files did it touch": ("How do I… see which files", "Changes and undo"),
    "add a screenshot": ("How do I… send a file", "Attach files"),
    "change the language": ("How do I… make the text", "Settings"),
    "how do I switch to another model": ("How do I… switch", "Choose a model"),
    "go on with my claude code chat here": ("How do I… continue a conversation",),
    "is my code sent anywhere": ("How do I… know what leaves", "Keys and privacy"),
    "it forgot what I told it": ("How do I… know why the agent forgot",),
    "two agents at the same time": ("How do I… work with two agents",),
    "read it on my phone": ("How do I… read and answer on my phone",),
    "don't spend more than five dollars": ("How do I… know what it costs",),
    "add a tool server": ("How do I… add a tool server", "MCP"),
    "why did it ask me": ("How do I… find out why the agent asked me",),
    "what did it change": ("Show Changes", "How do I… see which files", "Changes and undo"),
    "go on tomorrow": ("How do I… stop now, and go on tomorrow",),
    "run it every night": ("How do I… let an agent work later", "Fleet"),
    "use it from my editor": ("The agent in your editor",),
    "share this without secrets": ("How do I… give a conversation to somebody else",),
}
NONSENSE = ("flurble grax", "qwrtz plomp", "zzzzxx vvvbbn")


@pytest.fixture
def items(window: MainWindow) -> list[PaletteItem]:
    found = search_suggestions.suggest_actions(window.window_actions)
    found += search_suggestions.suggest_help_pages(str)
    found += search_suggestions.suggest_help_answers(lambda file, _: file)
    return found


def first_lines_of_palette(items: Sequence[PaletteItem], questions: Sequence[str]) -> list[str]:
    answers = PaletteAnswers(items)
    lines: list[str] = []
    for question in questions:
        matching = match_palette_items(items, question)
        rows = put_answers_first(matching, answers.list_answers_to_query(question), question)
        lines.append(rows[0].text if rows else "")
    return lines


def test_the_palette_answers_what_people_ask_first(items: list[PaletteItem]) -> None:
    lines = first_lines_of_palette(items, list(ASKED))
    wrong = {
        question: line
        for (question, right), line in zip(ASKED.items(), lines, strict=True)
        if not line.startswith(right)
    }
    assert wrong == {}
    assert first_lines_of_palette(items, NONSENSE) == [""] * len(NONSENSE)


def test_what_the_model_sees_leads_to_the_panel_that_shows_it(items: list[PaletteItem]) -> None:
    """The first hit was the choice of a model, and the panel was not found."""
    (first,) = first_lines_of_palette(items, ["what the model sees"])
    assert first == "Show or hide what the model sees"


def test_the_help_answers_what_people_ask_first(theme: Theme) -> None:
    wrong = {}
    for question, right in ASKED.items():
        lines = [finding.line for finding in find_help_pages(question)]
        if not lines or not lines[0].startswith(right):
            wrong[question] = lines[:1]
    assert wrong == {}
    assert [find_help_pages(words) for words in NONSENSE] == [(), (), ()]


def test_questions_are_answered_in_german_and_chinese(theme: Theme) -> None:
    before = QLocale()
    asked = {
        "de_DE": {
            "wie stoppe ich das": "den Agenten anhalten?",
            "was kostet das": "wissen, was es kostet?",
            "warum wurde es gekürzt": "herausfinden, warum",
        },
        "zh_CN": {
            "怎么停止": "停止智能体？",
            "要花多少钱": "知道费用？",
            "发送图片": "向智能体发送文件",
        },
    }
    try:
        for locale, questions in asked.items():
            QLocale.setDefault(QLocale(locale))
            for question, right in questions.items():
                assert right in find_help_pages(question)[0].line
    finally:
        QLocale.setDefault(before)


def test_what_is_named_stands_before_what_answers(items: list[PaletteItem]) -> None:
    chat = PaletteItem("Stop words of the index", str, kind="message", note="conversation")
    everything = [*items, chat]
    assert first_lines_of_palette(everything, ["stop words", "stop it"]) == [
        "Stop words of the index",
        "Stop the agent",
    ]


def test_the_help_says_that_nothing_was_found_and_opens_an_answer_at_its_question(
    theme: Theme,
) -> None:
    """Nonsense left the page as it was, without a word."""
    window = QWidget()
    dialog = HelpDialog(CONTENTS, window)
    dialog.show()
    QTest.keyClicks(dialog.search, "flurble grax")
    QApplication.processEvents()
    assert dialog._nothing_found.isVisible()
    assert "flurble grax" in dialog._nothing_found.text()
    dialog.search.clear()
    assert not dialog._nothing_found.isVisible()
    QTest.keyClicks(dialog.search, "undo only this part")
    dialog._open_first_found_page()
    assert dialog.page.source().fileName() == "how.md"
    (marked,) = dialog.page.extraSelections()
    assert marked.cursor.selectedText() == "undo only a part of what the agent changed?"


def test_a_text_with_less_than_half_of_what_was_asked_is_no_answer() -> None:
    matcher = QuestionMatcher([AnswerText("Stop the agent", ""), AnswerText("Cost limits", "")])
    assert matcher.positions_of_answers("please abort it", 3) == [0]
    assert matcher.positions_of_answers("abort flurbles graxes plomps", 3) == []
    assert matcher.positions_of_answers("", 3) == []
