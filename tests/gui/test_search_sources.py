"""The sources of the search of everything, each by what it finds and where that leads."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.extensions.extension_interfaces import ActionPlace
from helix_desktop.gui import search_sources
from helix_desktop.gui.frame.command_palette import PaletteItem
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.search_sources import SEARCH_SOURCES, SearchedWindow
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import WriteExtension, where, write_extension  # noqa: F401
from tests.extensions.test_allowed_imports import allow, load
from tests.gui import story

SEARCHES = """
import threading
from helix_desktop.extensions.extension_interfaces import *
def search(text):
    {body}
extension = Extension("Team", search_sources=[ExtensionSearchSource("Wiki", search)])
"""


def found_by_palette(window: MainWindow, query: str) -> dict[str, str]:
    """The texts of what is listed, each with its note."""
    window.palette_box.open_palette(query)
    window.search.search_everywhere(query)
    return {item.text: item.note for item in window.palette_box._model.items}


def test_the_files_of_the_workspace_are_found_by_name_and_shown(window: MainWindow) -> None:
    assert found_by_palette(window, "lock/man")["src/lock/manager.rs"] == "file"
    asked: list[str] = []
    window.parts.requests.file_wanted.connect(asked.append)
    (item,) = [
        item for item in window.palette_box._model.items if item.text == "src/lock/manager.rs"
    ]
    item.act()
    assert asked == ["src/lock/manager.rs"]


def test_who_types_the_name_of_a_file_means_it(window: MainWindow) -> None:
    def named_files(query: str) -> list[str]:
        found_by_palette(window, query)
        return [item.text for item in window.palette_box._model.items if item.is_named]

    assert named_files("manager.rs") == named_files("manager") == ["src/lock/manager.rs"]
    assert named_files("manager.r") == ["src/lock/manager.rs"]
    assert named_files("lock") == []


def test_one_letter_and_a_filter_find_no_file(window: MainWindow) -> None:
    assert "file" not in found_by_palette(window, "m").values()
    assert "file" not in found_by_palette(window, "tool:shell").values()


def test_each_source_has_a_name_of_its_own() -> None:
    assert len({source.name for source in SEARCH_SOURCES}) == len(SEARCH_SOURCES)


async def search_with_extensions(query: str) -> list[PaletteItem]:
    window = SearchedWindow((), None, "", print, print)
    (source,) = [source for source in SEARCH_SOURCES if source.name == "extensions"]
    items: list[PaletteItem] = []
    for searching in source.begin(window, query):
        items += await searching
    return items


async def test_a_page_that_an_extension_finds_is_opened_in_the_browser(
    where: ProgramFolders,  # noqa: F811
    write_extension: WriteExtension,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(search_sources, "open_in_browser", opened.append)
    body = "return [FoundPage('Release ' + text, 'https://wiki.example/r', 'Handbook')] * 99"
    write_extension("team", SEARCHES.format(body=body))
    assert await search_with_extensions("steps") == []
    load(allow(where, "team"))
    items = await search_with_extensions("steps")
    assert len(items) == 20
    assert (items[0].text, items[0].note) == ("Release steps", "Wiki · Handbook")
    items[0].act()
    assert opened == ["https://wiki.example/r"]


FAILURES = {
    "raise SystemExit": "raised SystemExit",
    "return [7]": "int instead of a FoundPage",
    "return [FoundPage('a', 'file:///etc/passwd')]": "the address 'file:///etc/passwd'",
    "return [FoundPage('a', 'https://a\\x1b]8;;')]": "the address",
    "return [FoundPage(7, 'https://a')]": "int instead of a text",
}


@pytest.mark.parametrize("body", FAILURES)
async def test_a_search_that_fails_is_named_and_three_times_in_a_row_is_the_end(
    body: str,
    where: ProgramFolders,  # noqa: F811
    write_extension: WriteExtension,  # noqa: F811
) -> None:
    write_extension("team", SEARCHES.format(body=body))
    extensions = load(allow(where, "team"))
    for query in ("one", "two", "three"):
        (item,) = await search_with_extensions(query)
        assert FAILURES[body] in item.text
        assert not item.enabled
    assert await search_with_extensions("four") == []
    assert "The extension team was switched off" in extensions.complaints[0]


def test_an_action_of_an_extension_is_told_where_the_user_is_and_its_answer_is_a_notice(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[ActionPlace] = []

    class Noting:
        async def run_at_place(self, place: ActionPlace) -> str:
            places.append(place)
            return "Noted."

    action: Any = Noting()
    window.search._run_action_of_extension(action)
    assert places[0].workspace == "storage-engine"
    assert places[0].conversation == story.CONVERSATION
    assert window.notices.shown_text == "Noted."
