from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QMenu, QPushButton

from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.gui.frame.sidebar import ConversationSearchField, Sidebar, format_folder
from helix_desktop.gui.theme import Theme

NOW = time.time()
ROWS = [
    Row("a", "Locks", NOW),
    Row("b", "Queues", NOW - 10),
    Row("c", "Put away", NOW, archived=True),
    Row("d", "Thrown away", NOW, trashed=True),
]


@pytest.fixture
def sidebar(theme: Theme) -> Sidebar:
    made = Sidebar(theme)
    made.resize(252, 600)
    made.show_workspace_title("storage-engine", Path.home() / "code" / "storage-engine")
    made.show_conversation_rows(ROWS)
    made.show()
    return made


def test_nothing_is_offered_before_the_conversations_are_read(theme: Theme) -> None:
    made = Sidebar(theme)
    made.show_workspace_title("storage-engine", None)
    made.show()
    assert not [link.text() for link in made.findChildren(QPushButton) if link.isVisible()]


def test_words_that_are_searched_everywhere_hide_no_conversation_any_more(theme: Theme) -> None:
    """The defect: the list stayed empty until a restart, also for new conversations."""
    sidebar = Sidebar(theme)
    wanted = QSignalSpy(sidebar.search.search_everywhere_wanted)
    QTest.keyClicks(sidebar.search, "import")
    QTest.keyClick(sidebar.search, Qt.Key.Key_Return)
    assert [wanted.at(0)[0], sidebar.search.text()] == ["import", ""]


def test_the_words_of_an_empty_list_stand_below_the_search_box(theme: Theme) -> None:
    """Put into the program's window, the label lost its margins, and the words touched the rail."""
    made = Sidebar(theme)
    made.resize(252, 600)
    made.show_conversation_rows([])
    words = made._empty_list_label
    words.setContentsMargins(0, 0, 0, 0)
    made.show()
    assert words.text()
    assert words.mapTo(made, words.contentsRect().topLeft()).x() >= 16


def titles(sidebar: Sidebar) -> list[str]:
    lines = sidebar.list.lines
    return [str(lines.index(at).data()) for at in range(lines.rowCount())]


def newest_menu(sidebar: Sidebar) -> QMenu:
    menus = [menu for menu in sidebar.findChildren(QMenu) if menu.parent() is sidebar]
    return menus[-1]


def offered(sidebar: Sidebar, conversation: str) -> list[str]:
    sidebar._show_conversation_menu(conversation, sidebar.mapToGlobal(sidebar.rect().center()))
    menu = newest_menu(sidebar)
    return [action.text() for action in menu.actions() if action.text()]


def test_a_folder_is_written_as_people_write_it() -> None:
    assert format_folder(Path.home() / "code" / "x") == "~/code/x"
    assert format_folder(Path("/srv/x")) == "/srv/x"


def test_typing_filters_the_list_and_enter_looks_everywhere(sidebar: Sidebar) -> None:
    wanted = QSignalSpy(sidebar.search.search_everywhere_wanted)
    QTest.keyClicks(sidebar.search, "lock")
    assert titles(sidebar) == ["Today", "Locks"]
    QTest.keyClick(sidebar.search, Qt.Key.Key_Return)
    assert wanted.at(0) == ["lock"]
    QTest.keyClick(sidebar.search, Qt.Key.Key_Escape)
    assert titles(sidebar) == ["Today", "Locks", "Queues"]


def test_what_is_not_there_says_what_to_do(sidebar: Sidebar) -> None:
    QTest.keyClicks(sidebar.search, "zebra")
    assert "Press Enter to search messages" in sidebar._empty_list_label.text()
    sidebar.search.clear()
    sidebar.show_conversation_rows([])
    assert (
        sidebar._empty_list_label.text()
        == "Your conversations appear here. Write a message to start one."
    )
    assert not sidebar.importing.isHidden(), "the welcome page with its offer does not come back"


def test_archive_and_trash_are_reached_from_below_the_list(sidebar: Sidebar) -> None:
    buttons = {
        button.text(): button for button in sidebar.findChildren(QPushButton) if button.isVisible()
    }
    assert set(buttons) == {"Archive · 1", "Trash · 1"}
    QTest.mouseClick(buttons["Trash · 1"], Qt.MouseButton.LeftButton)
    assert titles(sidebar) == ["Trash", "Thrown away"]
    QTest.mouseClick(sidebar._back, Qt.MouseButton.LeftButton)
    assert titles(sidebar)[0] == "Today"


def test_the_menu_offers_what_can_be_done(sidebar: Sidebar) -> None:
    assert offered(sidebar, "a")[:4] == ["Open to the side", "Rename…", "Pin", "Duplicate"]
    assert "Unarchive" in offered(sidebar, "c")
    assert len(offered(sidebar, "a")) <= 9
    places = next(action.menu() for action in newest_menu(sidebar).actions() if action.menu())
    assert isinstance(places, QMenu)
    assert places.title() == "Continue in"
    assert places.actions()[-1].text() == "A copy of the repository"
    assert offered(sidebar, "d") == ["Restore", "Delete permanently…"]


def test_a_choice_of_the_menu_is_handed_on(sidebar: Sidebar) -> None:
    wants = QSignalSpy(sidebar.conversation_action_wanted)
    offered(sidebar, "b")
    menu = newest_menu(sidebar)
    next(action for action in menu.actions() if action.text() == "Archive").trigger()
    assert wants.at(0) == ["archive", "b"]


def test_the_arrow_goes_from_the_box_into_the_list(sidebar: Sidebar) -> None:
    assert QTest.qWaitForWindowActive(sidebar)
    sidebar.search.setFocus()
    QTest.keyClick(sidebar.search, Qt.Key.Key_Down)
    assert sidebar.list.hasFocus()


def test_a_long_folder_is_shortened_to_the_room_there_is(sidebar: Sidebar) -> None:
    sidebar.show_workspace_title("x", Path("/srv") / ("long-" * 30) / "end")
    assert "…" in sidebar._path.text()
    assert sidebar._path.toolTip().endswith("/end")


def test_a_long_name_ends_in_an_ellipsis(sidebar: Sidebar) -> None:
    sidebar.show_workspace_title("a folder with a very long name " * 3, Path("/work"))
    sidebar.show()
    assert sidebar._title.text().endswith("…")


def test_the_shortcut_of_the_search_never_stands_on_its_words(theme: Theme) -> None:
    box = ConversationSearchField(theme)
    box.show_shortcut_in_field("Ctrl K")
    box.show()
    box.resize(260, 32)
    assert box._key.isVisible()
    box.resize(110, 32)
    assert not box._key.isVisible()
    box.resize(260, 32)
    box.setText("x")
    assert not box._key.isVisible()


def test_with_large_text_the_words_of_an_empty_list_are_not_cut(theme: Theme) -> None:
    sidebar = Sidebar(theme)
    theme.set_zoom(2.0)
    sidebar.resize(400, 860)
    sidebar.show_conversation_rows([])
    sidebar.show()
    QApplication.processEvents()
    for words in (sidebar._empty_list_label, sidebar.importing):
        assert words.height() >= words.heightForWidth(words.width())
        assert words.geometry().right() < sidebar.width()
    theme.set_zoom(1.0)


@pytest.mark.parametrize("button", [Qt.MouseButton.RightButton, Qt.MouseButton.MiddleButton])
def test_the_open_conversation_stays_marked_when_the_menu_of_another_was_open(
    sidebar: Sidebar, button: Qt.MouseButton
) -> None:
    shown = sidebar.list
    shown.select_conversation("a")
    other = shown.visualRect(shown.lines.index(shown.lines.find_conversation_row("b"))).center()
    QTest.mouseClick(shown.viewport(), button, pos=other)
    assert shown.selected_conversation_id() == "a"
    assert [shown._conversation_id_at(index) for index in shown.selectedIndexes()] == ["a"]


def test_the_menu_says_which_agents_are_not_installed(
    sidebar: Sidebar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    offered(sidebar, "a")
    places = next(action.menu() for action in newest_menu(sidebar).actions() if action.menu())
    assert isinstance(places, QMenu)
    words = [action.text() for action in places.actions()]
    assert "Codex…" in words
    assert "Claude Code (not installed)…" in words
