from __future__ import annotations

from functools import partial

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui.frame.command_palette import (
    CommandPalette,
    PaletteItem,
    match_palette_items,
    put_answers_first,
)
from helix_desktop.gui.theme import Theme


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def palette(theme: Theme, done: list[str]) -> CommandPalette:
    parent = QWidget()
    parent.resize(1000, 700)
    names = ("Rename conversation", "New conversation", "Settings")
    finds = [PaletteItem(name, partial(done.append, name)) for name in names]
    finds.append(PaletteItem("Stop the agent", lambda: done.append("stop"), enabled=False))
    made = CommandPalette(theme, lambda: finds, parent)
    parent.show()
    assert QTest.qWaitForWindowActive(parent)
    made.open_palette()
    made.destroyed.connect(parent.deleteLater)
    made._kept = parent  # type: ignore[attr-defined]  # lives as long as the palette
    return made


def test_every_word_has_to_fit_and_what_begins_so_comes_first() -> None:
    finds = [
        PaletteItem("Answer again", print),
        PaletteItem("New conversation", print),
        PaletteItem("Rename", print, note="conversation"),
    ]
    assert [find.text for find in match_palette_items(finds, "conv new")] == ["New conversation"]
    assert [find.text for find in match_palette_items(finds, "re")] == ["Rename"]
    assert len(match_palette_items(finds, "")) == 3
    alike = [
        PaletteItem(text, print, note="Workspace")
        for text in ("Import conversations…", "Import workspace…")
    ]
    assert [find.text for find in match_palette_items(alike, "import workspace")] == [
        "Import workspace…",
        "Import conversations…",
    ]


def test_at_rest_everything_is_listed_and_a_cut_list_of_matches_says_so() -> None:
    """After 40 lines the list ended, so that Help and Export seemed not to exist."""
    finds = [PaletteItem(f"Action {number}", print) for number in range(100)]
    assert len(match_palette_items(finds, "")) == 100

    matches = match_palette_items(finds, "action")
    assert [match.text for match in matches[38:]] == ["Action 38", "Action 39", "and 60 more"]
    assert not matches[-1].enabled


def test_an_action_comes_before_a_page_of_help_and_is_found_by_the_plural() -> None:
    finds = [
        PaletteItem(
            "Agents that work together: how to define them", print, kind="entry", note="Help"
        ),
        PaletteItem("Connect an agent…", print, note="File"),
    ]
    assert [find.note for find in match_palette_items(finds, "agents")] == ["File", "Help"]
    assert [find.note for find in match_palette_items(finds, "work together")] == ["Help"]


def test_typing_and_enter_do_what_was_found(palette: CommandPalette, done: list[str]) -> None:
    QTest.keyClicks(palette.line, "new")
    assert [find.text for find in palette._model.items] == ["New conversation"]
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["New conversation"]
    assert not palette.isVisible()


def test_what_has_the_typed_words_in_its_title_comes_first_also_where_it_answers() -> None:
    """With "import conv", Return opened the import of a whole workspace."""
    texts = ("Import workspace…", "Continue in another agent…", "Import or record conversations…")
    items = [PaletteItem(text, print, answers_questions=True) for text in texts]
    # "or" is in no search of words alone, so that the second is worded as a question.
    for query in ("import conv", "import or"):
        matching = match_palette_items(items, query)
        rows = put_answers_first(matching, items, query)
        assert [row.text for row in rows] == [texts[2], texts[0], texts[1]]


def test_a_word_that_begins_as_typed_comes_before_one_that_only_contains_it() -> None:
    items = [PaletteItem("Import workspace…", print), PaletteItem("Choose a port", print)]
    found = match_palette_items(items, "port")
    assert [item.text for item in found] == ["Choose a port", "Import workspace…"]


def test_after_the_sign_of_commands_only_actions_are_listed(
    palette: CommandPalette, done: list[str]
) -> None:
    """Who knows ">" from an editor got the questions of the help."""
    help_page = PaletteItem("> is a sign: new", print, kind="entry", note="Help")
    conversation = PaletteItem("new > old", print, kind="message")
    actions = list(palette._list_ready_items())
    palette._list_ready_items = lambda: [help_page, conversation, *actions]
    palette.open_palette(">")
    assert palette._model.items == actions

    searching = QSignalSpy(palette.search_wanted)
    palette.line.setText("> new")
    palette._request_workspace_search()
    assert searching.count() == 0
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["New conversation"]


def test_arrows_go_round(palette: CommandPalette, done: list[str]) -> None:
    QTest.keyClick(palette.line, Qt.Key.Key_Up)
    QTest.keyClick(palette.line, Qt.Key.Key_Down)
    QTest.keyClick(palette.line, Qt.Key.Key_Down)
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["New conversation"]


def test_what_cannot_be_done_now_is_shown_and_not_done(
    palette: CommandPalette, done: list[str]
) -> None:
    QTest.keyClicks(palette.line, "stop")
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == []
    assert palette.isVisible()


def test_return_on_what_cannot_be_done_says_why_and_stays(
    palette: CommandPalette, done: list[str]
) -> None:
    """Return on a greyed action opened the page of help that stood below it."""
    reason = "The agent is not working."
    stop = PaletteItem("Stop the agent", partial(done.append, "x"), enabled=False, why_not=reason)
    help_page = PaletteItem("How to stop the agent", partial(done.append, "help"), kind="entry")
    palette._list_ready_items = lambda: [help_page, stop]
    palette.open_palette()
    QTest.keyClicks(palette.line, "stop the agent")
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert (done, palette.isVisible()) == ([], True)
    assert palette._reason.isVisible()
    assert palette._reason.text() == reason
    index = palette.list.currentIndex()
    assert reason in str(index.data(Qt.ItemDataRole.AccessibleTextRole))
    QApplication.processEvents()
    assert palette.box.rect().contains(palette._reason.geometry())
    QTest.keyClick(palette.line, Qt.Key.Key_Down)
    assert not palette._reason.isVisible()
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["help"], "who moves the highlight there means it"


def test_what_can_be_done_once_a_workspace_is_open_can_be_chosen_in_an_open_palette(
    palette: CommandPalette, done: list[str]
) -> None:
    """Opened while a workspace was loading, the palette stayed dead."""
    QTest.keyClicks(palette.line, "stop")
    palette._list_ready_items = lambda: [
        PaletteItem("Stop the agent", partial(done.append, "stop"))
    ]
    palette.list_ready_items_again()
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["stop"]


def test_return_does_not_choose_another_action_than_the_one_that_was_meant(
    palette: CommandPalette, done: list[str]
) -> None:
    """Return after "export conv" copied the last answer, as an export was not possible then."""
    export = PaletteItem("Export conversation…", print, enabled=False)
    copy = PaletteItem(
        "Copy the last answer", partial(done.append, "copy"), search_words="export conversation"
    )
    other = PaletteItem("Export conversation elsewhere…", partial(done.append, "other"))
    palette._list_ready_items = lambda: [export, copy, other]
    palette.open_palette()
    QTest.keyClicks(palette.line, "export conv")
    texts = [item.text for item in palette._model.items]
    assert texts == [export.text, other.text, copy.text]
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert (done, palette.isVisible()) == ([], True)
    QTest.keyClick(palette.line, Qt.Key.Key_Down)
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["other"], "who moves the highlight there means it"


def test_escape_closes_it(palette: CommandPalette) -> None:
    closed = QSignalSpy(palette.closed)
    QTest.keyClick(palette.line, Qt.Key.Key_Escape)
    assert closed.count() == 1
    assert not palette.isVisible()


def test_the_workspace_is_searched_once_typing_pauses_and_late_answers_are_dropped(
    palette: CommandPalette,
) -> None:
    searching = QSignalSpy(palette.search_wanted)
    QTest.keyClicks(palette.line, "lock")
    assert searching.wait(1_000)
    assert [searching.at(at)[0] for at in range(searching.count())] == ["lock"]
    palette.show_search_results(
        "lock", [PaletteItem("a message about locks", print, kind="message")]
    )
    palette.show_search_results("loc", [PaletteItem("an older answer", print)])
    assert [find.text for find in palette._model.items] == ["a message about locks"]


def test_where_nothing_is_found_that_is_said(palette: CommandPalette) -> None:
    QTest.keyClicks(palette.line, "zzqq")
    assert not palette._nothing.isVisible(), "nobody has answered yet"
    palette.show_search_results("zzqq", [])
    assert palette._nothing.isVisible()
    QTest.keyClick(palette.line, Qt.Key.Key_Backspace)
    assert not palette._nothing.isVisible()


def test_an_answer_that_comes_does_not_move_the_choice(
    palette: CommandPalette, done: list[str]
) -> None:
    QTest.keyClicks(palette.line, "conversation")
    QTest.keyClick(palette.line, Qt.Key.Key_Down)
    palette.show_search_results(
        "conversation", [PaletteItem("a message", partial(done.append, "message"), kind="message")]
    )
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["New conversation"]
    palette.open_palette()
    QTest.keyClicks(palette.line, "zebra")
    palette.show_search_results(
        "zebra", [PaletteItem("a zebra", partial(done.append, "zebra"), kind="message")]
    )
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["New conversation", "zebra"]


def test_the_same_words_are_looked_for_again_after_the_line_was_empty(
    palette: CommandPalette,
) -> None:
    asked = QSignalSpy(palette.search_wanted)
    for words in ("lock", "", "lock"):
        palette.line.setText(words)
        palette._request_workspace_search()
    assert [asked.at(at)[0] for at in range(asked.count())] == ["lock", "lock"]


def test_exact_hits_stand_before_help_that_only_resembles_the_words(
    palette: CommandPalette, done: list[str]
) -> None:
    """Four lines of help stood before the message that said "late fee"."""
    named = PaletteItem("Cap the late fee", print, kind="message")
    costs = PaletteItem(
        "How do I know what it costs?", partial(done.append, "help"), search_words="late fee"
    )
    palette._list_ready_items = lambda: [costs, named]
    palette.open_palette()
    QTest.keyClicks(palette.line, "late fee")
    assert [row.text for row in palette._model.items] == [named.text, costs.text]

    hit = PaletteItem("the late fee is capped", print, kind="message")
    heading = PaletteItem("Similar:", str, kind="heading", enabled=False)
    similar = PaletteItem("a fee", print, kind="message", is_similar=True)
    palette.show_search_results("late fee", [hit, heading, similar])
    assert palette._model.items == [named, hit, costs, heading, similar]


def test_hits_in_the_own_work_stand_before_what_has_fewer_of_the_words(
    palette: CommandPalette,
) -> None:
    """Return after "some text about loans" made the text of the window larger."""
    larger = PaletteItem("Larger text", print, answers_questions=True)
    new = PaletteItem("New conversation", print, search_words="open", answers_questions=True)
    palette._list_ready_items = lambda: [larger, new]
    palette.open_palette()
    hit = PaletteItem("row 0 some text about loans", print, kind="entry")
    heading = PaletteItem("Similar:", str, kind="heading", enabled=False)
    similar = PaletteItem("loans of the year", print, kind="message", is_similar=True)

    def first_rows(query: str, *results: PaletteItem) -> list[PaletteItem]:
        palette.line.setText(query)
        palette.show_search_results(query, results)
        return list(palette._model.items)

    loose = "some text about loans"
    assert first_rows(loose, hit, heading, similar) == [hit, heading, similar, larger]
    assert palette.list.currentIndex().row() == 0
    assert first_rows(loose, heading, similar) == [heading, similar, larger]
    question = "how do I make the text of loans larger"
    assert first_rows(question, hit, heading, similar) == [hit, larger, heading, similar]
    assert first_rows("make the text larger", hit)[0] == larger, "it is an answer to all of it"
    title = PaletteItem("为什么滞纳金计算错误？", print, kind="message")
    answer = PaletteItem("滞纳金在周末没有计算", print, kind="message")
    palette._list_ready_items = lambda: [larger, new, title]
    palette.open_palette()
    assert first_rows("滞纳金", answer) == [title, answer]
    name = PaletteItem("if not is_open(day):", print, kind="entry")
    assert first_rows("is_open", name) == [name], "a name in code is no question"


def test_what_return_would_do_is_not_exchanged_by_an_answer(
    palette: CommandPalette, done: list[str]
) -> None:
    """Return opened a page of help that had been shown before the search answered."""
    costs = PaletteItem(
        "How do I know what it costs?", partial(done.append, "help"), search_words="late fee"
    )
    palette._list_ready_items = lambda: [costs]
    palette.open_palette()
    QTest.keyClicks(palette.line, "late fee")
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert (done, palette.isVisible()) == ([], True)

    palette.show_search_results("late fee", (), more=True)  # One workspace has nothing.
    elsewhere = PaletteItem("a fee that is late", partial(done.append, "elsewhere"), kind="message")
    palette.show_search_results("late fee", [elsewhere], more=True, is_first_certain=False)
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert (done, palette.isVisible()) == ([], True), "the shown workspace has not answered"
    first = PaletteItem("the late fee", partial(done.append, "first"), kind="message")
    palette.show_search_results("late fee", [first], more=True)
    earlier = PaletteItem("a late fee", partial(done.append, "earlier"), kind="message")
    palette.show_search_results("late fee", [earlier, first])
    QTest.keyClick(palette.line, Qt.Key.Key_Return)
    assert done == ["first"]
