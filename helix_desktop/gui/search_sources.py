"""What the search of everything asks while somebody waits: each source is one declaration.

What is in memory (conversations, actions, help pages) is listed before any search, and closed
workspaces are opened one after the other; `everything_search.py` does both.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import search_suggestions
from helix_desktop.gui.common.found_words import list_needles_of_query
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.frame.command_palette import HEADING, PaletteItem
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownWorkspace, client_of_host
from helix_desktop.gui.translation import tr

if TYPE_CHECKING:
    from helix_desktop.extensions.added_search_sources import AddedSearchSource

MOST_FILES = 8
Searching = Coroutine[Any, Any, Sequence[PaletteItem]]


@dataclass(frozen=True, slots=True)
class SearchedWindow:
    """What the sources search, and where what they found leads.

    `opened_workspaces`: the shown one first, wherever it is open, then those of this process.
    """

    opened_workspaces: Sequence[ShownWorkspace]
    shown_workspace: ShownWorkspace | None
    shown_workspace_id: str
    go_to_place: search_suggestions.GoToPlace
    open_file: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class SearchSource:
    """A source of the search. `begin` returns the searches of a text, which are shown one by one,
    as soon as each has ended. `begins_with_shown_workspace`: the first one is of that workspace.
    """

    name: str
    begin: Callable[[SearchedWindow, str], Sequence[Searching]]
    begins_with_shown_workspace: bool = False


def _begin_with_open_workspaces(window: SearchedWindow, query: str) -> Sequence[Searching]:
    return [_search_index(window, workspace, query) for workspace in window.opened_workspaces]


async def _search_index(
    window: SearchedWindow, workspace: ShownWorkspace, query: str
) -> Sequence[PaletteItem]:
    try:
        hits = await workspace.catalogue.index.search_index(query)
    except HelixError as error:
        if client_of_host(workspace) is None:
            raise
        # The line to it may be broken for hours. A message for each letter would help nobody.
        return [_build_reason_line(workspace.name, translate_sentences(error.what))]
    titles = {row.id: row.title for row in workspace.list_conversations()}
    # A hit names its workspace only if it is another one than the user is in.
    name = ""
    if workspace.id != window.shown_workspace_id:
        name = workspace.name
    return search_suggestions.suggest_search_hits(
        hits, titles, workspace.id, window.go_to_place, query, name
    )


def _begin_with_file_names(window: SearchedWindow, query: str) -> Sequence[Searching]:
    # A colon belongs to a filter of the search, and a single letter is in nearly every name.
    if window.shown_workspace is None or len(query) < 2 or ":" in query:
        return []
    return [_search_file_names(window, window.shown_workspace, query)]


async def _search_file_names(
    window: SearchedWindow, workspace: ShownWorkspace, query: str
) -> Sequence[PaletteItem]:
    needles = list_needles_of_query(query)
    try:
        paths = await workspace.complete_file_paths(query, MOST_FILES)
    except HelixError:
        if client_of_host(workspace) is None:
            raise
        return []  # That the line to it is broken is said once, by the search of its messages.
    items: list[PaletteItem] = []
    for path in paths:
        if not path.endswith("/"):
            open_file = partial(window.open_file, path)
            item = PaletteItem(
                path,
                open_file,
                kind="entry",
                note=tr("file"),
                needles=needles,
                is_named=_is_name_of_file(query.casefold(), path.casefold()),
            )
            items.append(item)
    return items


def _is_name_of_file(query: str, path: str) -> bool:
    """Whether somebody who types this means the file: its whole name, also without the ending, or
    the beginning of a name with its ending.
    """
    name = path.rpartition("/")[2]
    name_without_ending, _dot, _ending = name.rpartition(".")
    if query in (path, name, name_without_ending):
        return True
    return "." in query and name.startswith(query)


def _begin_with_extensions(_: SearchedWindow, query: str) -> Sequence[Searching]:
    # Few have one, so the start does not wait for this module.
    from helix_desktop.extensions.added_search_sources import list_added_search_sources

    return [_search_with_extension(added, query) for added in list_added_search_sources()]


async def _search_with_extension(added: "AddedSearchSource", query: str) -> Sequence[PaletteItem]:
    answer = await added.search(query)
    items: list[PaletteItem] = []
    for page in answer.pages:
        note = " · ".join(filter(None, [added.title, page.note]))
        open_page = partial(open_in_browser, page.address)
        items.append(PaletteItem(page.title, open_page, kind="entry", note=note))
    if answer.failure:
        items.append(_build_reason_line(added.title, answer.failure))
    return items


def _build_reason_line(source: str, reason: str) -> PaletteItem:
    """Says why a source was not searched. It cannot be chosen."""
    text = tr("Not searched: {reason}", reason=reason)
    return PaletteItem(text, act=str, kind=HEADING, note=source, enabled=False)


SEARCH_SOURCES: Sequence[SearchSource] = (
    SearchSource(
        "messages and stored outputs",
        _begin_with_open_workspaces,
        begins_with_shown_workspace=True,
    ),
    SearchSource(
        "files of the workspace", _begin_with_file_names, begins_with_shown_workspace=True
    ),
    SearchSource("extensions", _begin_with_extensions),
)
