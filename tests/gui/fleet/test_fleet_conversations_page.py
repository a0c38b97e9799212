"""Conversations that run or have a copy: which are listed, and that one must be chosen to open it."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QTreeWidgetItem

from helix_desktop.gui.fleet.fleet_conversations_page import FleetConversationsPage
from helix_desktop.program_folders import ProgramFolders
from tests.gui.fleet.fleet_parts import Parts
from tests.gui.fleet.test_fleet_dialog import IdleBench, places

__all__ = ["places"]


@pytest.fixture
def parts(places: ProgramFolders, application: object) -> Parts:
    return Parts(places)


def row_of(page: FleetConversationsPage, number: int) -> QTreeWidgetItem:
    item = page.conversation_list.topLevelItem(number)
    assert item is not None
    return item


def test_the_changed_files_of_copies_are_read_when_the_page_is_made(parts: Parts) -> None:
    FleetConversationsPage(parts.parts, None)  # type: ignore[arg-type]
    assert parts.desk.bench.read == [""]


def test_what_runs_or_has_a_copy_is_listed_and_opened_when_it_is_chosen(parts: Parts) -> None:
    page = FleetConversationsPage(parts.parts, None)  # type: ignore[arg-type]
    assert not page.has_conversations()
    page.show_conversations()
    assert page.has_conversations()
    assert [row_of(page, number).text(1) for number in (0, 1)] == ["One", "Two"]
    page.conversation_list.setCurrentItem(row_of(page, 1))
    assert page.open.isEnabled()
    page.open.click()
    page.conversation_list.itemActivated.emit(row_of(page, 1), 0)
    assert parts.went == [("w1", "c2"), ("w1", "c2")]


def test_without_any_nothing_can_be_opened(parts: Parts) -> None:
    parts.desk.bench = IdleBench()
    page = FleetConversationsPage(parts.parts, None)  # type: ignore[arg-type]
    page.show_conversations()
    assert not page.has_conversations()
    assert not page.open.isEnabled()


def test_the_list_gets_the_room_and_its_columns_their_widths(parts: Parts) -> None:
    page = FleetConversationsPage(parts.parts, None)  # type: ignore[arg-type]
    columns = page.conversation_list._columns
    assert [(one.title, one.width, one.is_whole) for one in columns] == [
        ("State", 150, True),
        ("Conversation", 0, False),
        ("Workspace", 130, False),
        ("Agent", 110, False),
        ("Copy of", 110, False),
        ("Changed files", 200, False),
        ("Also changed in other copies", 260, False),
        ("Cost", 80, True),
    ]
    page.resize(1_200, 400)
    page.show()
    layout = page.layout()
    assert layout is not None
    assert layout.spacing() == 12
    assert layout.contentsMargins().left() == layout.contentsMargins().top() == 0
    assert page.conversation_list.height() > 300
    assert page.open.mapTo(page, page.open.rect().topRight()).x() > 1_150
