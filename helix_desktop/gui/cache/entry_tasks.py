"""Slow work of the cache page as coroutines: search, copy, save, compare."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QObject

from helix_desktop.atomic_files import ReplacementFile
from helix_desktop.engine.cache_entry_rows import EntryFilter, EntryRow, EntrySort, EntryUse
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.hidden_characters import is_mostly_text
from helix_desktop.errors import HelixError, InvalidInput, StoreFailed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.content_shapes import PAGE_BYTES
from helix_desktop.gui.cache.entries_model import EntrySearchHit
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.shown_workspace import ShownCatalogue
from helix_desktop.gui.translation import format_count, tr

MOST_SEARCH_HITS = 200
ROWS_AT_ONCE = 4_000
LARGEST_COMPARED_BYTES = 4 << 20
T = TypeVar("T")
EntryProgressCallback = Callable[[int, int], None]


class CatalogueWork:
    """Runs work for the shown workspace. Its result is ignored once another one is shown."""

    def __init__(self, runner: BackgroundRunner, owner: QObject) -> None:
        self.catalogue: ShownCatalogue | None = None
        self.runner = runner
        self._owner = owner

    def run_then_if_shown(
        self,
        work: Coroutine[Any, Any, T],
        then: Callable[[T], object],
        failed: Callable[[HelixError], object] | None = None,
    ) -> None:
        """Runs `work` in the background and gives its result to `then`, or its error to `failed`.
        Neither is called if another workspace is shown by then.
        """
        catalogue_at_start = self.catalogue

        def show_result_if_shown(result: T) -> None:
            if self.catalogue is catalogue_at_start:
                then(result)

        def show_failure_if_shown(error: HelixError) -> None:
            if self.catalogue is catalogue_at_start and failed is not None:
                failed(error)

        # Without a way of its own to show a failure, the runner shows it as a notice.
        handle_failure = None
        if failed is not None:
            handle_failure = show_failure_if_shown
        self.runner.run_in_background(
            work, then=show_result_if_shown, owner=self._owner, failed=handle_failure
        )


async def search_entries_with_rows(
    catalogue: ShownCatalogue, text: str, *, tool: str = ""
) -> Sequence[EntrySearchHit]:
    """Returns the entries with all words, then those with some of them, the best first."""
    hits = await catalogue.index.search_index(
        text, tool=tool, limit=MOST_SEARCH_HITS, entries_only=True
    )
    digests = [hit.digest for hit in hits if hit.digest is not None]
    rows = await catalogue.index.find_entry_rows(digests)
    with_all_words: list[EntrySearchHit] = []
    with_some_words: list[EntrySearchHit] = []
    for hit in hits:
        row = None
        if hit.digest is not None:
            row = rows.get(hit.digest)
        if row is None:
            continue
        entry_hit = EntrySearchHit(row, hit.snippet, hit.line, hit.has_all_words)
        if hit.has_all_words:
            with_all_words.append(entry_hit)
        else:
            with_some_words.append(entry_hit)
    return with_all_words + with_some_words


async def fetch_hashes_of_rows(
    catalogue: ShownCatalogue,
    ranges: Sequence[tuple[int, int]],
    order: tuple[EntryFilter, EntrySort, bool],
    report: EntryProgressCallback,
) -> bytes:
    """Returns the hashes of rows, one on each line, as bytes, which the clipboard takes
    without another copy.
    """
    entry_filter, sort, descending = order
    total = 0
    for first, last in ranges:
        total += last - first + 1
    lines: list[bytes] = []
    for first, last in ranges:
        end = last + 1
        for offset in range(first, end, ROWS_AT_ONCE):
            limit = min(ROWS_AT_ONCE, end - offset)
            rows = await catalogue.index.entries_page(
                entry_filter, sort=sort, descending=descending, offset=offset, limit=limit
            )
            for row in rows:
                lines.append(row.stored.digest.hex.encode())
            report(len(lines), total)
    if total <= ROWS_AT_ONCE:
        return b"\n".join(lines)
    # So many lines are joined in a thread, where they do not hold up the window.
    return await asyncio.to_thread(b"\n".join, lines)


async def save_entry_to_file(
    catalogue: ShownCatalogue, stored: Stored, path: Path, report: EntryProgressCallback
) -> None:
    """Writes a temporary file beside `path` and renames it, so that no half-written
    file remains.
    """
    temporary_file: ReplacementFile | None = None
    try:
        temporary_file = await asyncio.to_thread(ReplacementFile, path)
        for start in range(0, stored.size, PAGE_BYTES):
            length = min(PAGE_BYTES, stored.size - start)
            page = await catalogue.cache.read_range(stored.digest, start, length)
            await asyncio.to_thread(temporary_file.file.write, page)
            report(start + length, stored.size)
        await asyncio.to_thread(temporary_file.replace_target)
    except OSError as error:
        sentence = tr(
            "The stored output could not be saved: {why}.", why=error.strerror or str(error)
        )
        raise StoreFailed(
            sentence, remedy=tr("The output is still in the cache. Choose another location.")
        ) from error
    finally:
        if temporary_file is not None:
            await asyncio.to_thread(temporary_file.discard_replacement)


async def read_two_entry_texts(
    catalogue: ShownCatalogue, older: Stored, newer: Stored
) -> tuple[str, str]:
    if older.size + newer.size > LARGEST_COMPARED_BYTES:
        raise InvalidInput(
            tr("These outputs total more than 4 MB, which is too much to compare here.")
        )
    old_content = await catalogue.cache.read_range(older.digest, 0, older.size)
    new_content = await catalogue.cache.read_range(newer.digest, 0, newer.size)
    if not is_mostly_text(old_content) or not is_mostly_text(new_content):
        raise InvalidInput(tr("Only text can be compared."))
    return old_content.decode("utf-8", "replace"), new_content.decode("utf-8", "replace")


def suggest_entry_file_name(row: EntryRow) -> str:
    _folder, _slash, last_part = row.about.source.rpartition("/")
    allowed_in_names = re.sub(r"[^\w.\- ]+", "_", last_part)
    name = allowed_in_names[:80].strip(" .")
    if "." in name:
        return name
    short_hash = row.stored.digest.hex[:8]
    return f"{name or row.about.tool or 'entry'}-{short_hash}.txt"


def entry_name_with_hash(row: EntryRow) -> str:
    return f"{row.about.source or row.about.tool} · {row.stored.digest.short_hex}"


def describe_forgetting(row: EntryRow, uses: Sequence[EntryUse]) -> str:
    """Writes the question that is asked before an output is removed for good: what it
    is, what goes with it, and how many messages refer to it. A summary that names it (a
    fold) is no message.
    """
    name = entry_name_with_hash(row)
    size = format_byte_size(row.stored.size)
    message_count = sum(use.how != "fold" for use in uses)
    paragraphs = [
        tr("Forget this output permanently?"),
        tr("{name}, {size}", name=name, size=size),
        tr(
            "The output is removed from the cache, the search index, the history and the backups. Files you exported earlier are not changed."
        ),
        format_count(
            message_count,
            "{n} message refers to this output and will show that it was removed.",
            "{n} messages refer to this output and will show that it was removed.",
        ),
        tr("After that, neither you nor the agent can recall it. This cannot be undone."),
    ]
    return "\n\n".join(paragraphs)
