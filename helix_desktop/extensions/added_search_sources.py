"""What extensions add to the search of everything: pages of the web that they find for a text."""

import asyncio
from collections.abc import Iterable
from itertools import islice

from helix_desktop.errors import InvalidInput
from helix_desktop.extensions.extension_interfaces import ExtensionSearchSource, FoundPage
from helix_desktop.extensions.limited_calls import ExtensionFailed, printable_text
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.fast_dataclass import dataclass

SECONDS_FOR_SEARCH = 10.0
MOST_PAGES = 20  # Of each source.
LONGEST_ADDRESS = 2_000


@dataclass(frozen=True, slots=True)
class AddedSearchAnswer:
    """What a source found. `failure`: why it found nothing."""

    pages: tuple[FoundPage, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class AddedSearchSource:
    extension: RunningExtension
    declared: ExtensionSearchSource

    @property
    def title(self) -> str:
        return self.declared.title

    async def search(self, query: str) -> AddedSearchAnswer:
        return await asyncio.to_thread(self._search, query)

    def _search(self, query: str) -> AddedSearchAnswer:
        try:
            pages = self.extension.run_and_count(
                lambda: _check_pages(self.declared.search(query)),
                SECONDS_FOR_SEARCH,
                f"the search of {self.title}",
            )
        except ExtensionFailed as error:
            return AddedSearchAnswer(failure=error.what)
        return AddedSearchAnswer(pages)


_added: dict[str, AddedSearchSource] = {}


def add_search_source(added: AddedSearchSource) -> None:
    """Raises InvalidInput if another extension has one with this title."""
    if added.title in _added:
        raise InvalidInput(f"There is another search named {added.title}.")
    _added[added.title] = added


def remove_search_source(title: str) -> None:
    _added.pop(title, None)


def list_added_search_sources() -> list[AddedSearchSource]:
    running: list[AddedSearchSource] = []
    for added in _added.values():
        if not added.extension.stopped_because:
            running.append(added)
    return running


def _check_pages(found: Iterable[object]) -> tuple[FoundPage, ...]:
    pages: list[FoundPage] = []
    for page in islice(found, MOST_PAGES):
        if type(page) is not FoundPage:
            raise ExtensionFailed(f"it returned {type(page).__name__} instead of a FoundPage")
        for text in (page.title, page.address, page.note):
            if type(text) is not str:
                raise ExtensionFailed(f"it returned {type(text).__name__} instead of a text")
        is_plain = page.address.isprintable() and len(page.address) <= LONGEST_ADDRESS
        if not is_plain or not page.address.startswith(("https://", "http://")):
            raise ExtensionFailed(f"it returned the address {page.address[:80]!r}")
        title = printable_text(page.title)
        note = printable_text(page.note)
        pages.append(FoundPage(title, page.address, note))
    return tuple(pages)
