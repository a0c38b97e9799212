"""What takes time on the cache page, as coroutines that let the window live: searching, copying, saving, comparing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from helix_desktop.durable import Beside
from helix_desktop.engine.catalogue import Filter, Row, Sort
from helix_desktop.engine.facts import Stored
from helix_desktop.errors import StoreFailed, WrongUse
from helix_desktop.gui.cache.model import Found
from helix_desktop.gui.cache.shapes import PAGE, is_text
from helix_desktop.gui.cache_port import Catalogue
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.words import count, tr

MOST_FOUND = 200
AT_ONCE = 4_000
LARGEST_COMPARED = 4 << 20
Report = Callable[[int, int], None]


async def found(catalogue: Catalogue, text: str, *, tool: str = "") -> Sequence[Found]:
    """The entries that hold a text, the best first."""
    hits = await catalogue.index.search(text, tool=tool, limit=MOST_FOUND, entries_only=True)
    places: list[Found] = []
    for hit in hits:
        row = await catalogue.index.row(hit.digest) if hit.digest is not None else None
        if row is not None:
            places.append(Found(row, hit.snippet, hit.line))
    return places


async def hashes(
    catalogue: Catalogue, ranges: Sequence[tuple[int, int]], order: tuple[Filter, Sort, bool], report: Report
) -> bytes:
    """The hashes of rows, a line each, as bytes: the clipboard takes them without another copy."""
    chosen, sort, descending = order
    total = sum(last - first + 1 for first, last in ranges)
    lines: list[bytes] = []
    for first, last in ranges:
        for offset in range(first, last + 1, AT_ONCE):
            limit = min(AT_ONCE, last + 1 - offset)
            rows = await catalogue.index.entries(chosen, sort=sort, descending=descending, offset=offset, limit=limit)
            lines += [row.stored.digest.hex.encode() for row in rows]
            report(len(lines), total)
    return b"\n".join(lines) if total <= AT_ONCE else await asyncio.to_thread(b"\n".join, lines)


async def save(catalogue: Catalogue, stored: Stored, path: Path, report: Report) -> None:
    """Write an entry to a file: beside it first, then in its place, so that no half file is left under its name."""
    beside: Beside | None = None
    try:
        beside = await asyncio.to_thread(Beside, path)
        for start in range(0, stored.size, PAGE):
            piece = await catalogue.cache.read(stored.digest, start, min(PAGE, stored.size - start))
            await asyncio.to_thread(beside.file.write, piece)
            report(min(start + PAGE, stored.size), stored.size)
        await asyncio.to_thread(beside.take_place)
    except OSError as error:
        what = tr("Couldn't save the entry: {why}.", why=error.strerror or str(error))
        raise StoreFailed(what, remedy=tr("The entry is still in the cache. Choose another location.")) from error
    finally:
        if beside is not None:
            await asyncio.to_thread(beside.drop)


async def two_texts(catalogue: Catalogue, one: Stored, two: Stored) -> tuple[str, str]:
    """Two entries as text, to compare them."""
    if one.size + two.size > LARGEST_COMPARED:
        raise WrongUse(tr("These entries total more than 4 MB, which is too much to compare here."))
    contents = [await catalogue.cache.read(stored.digest, 0, stored.size) for stored in (one, two)]
    if not all(is_text(content) for content in contents):
        raise WrongUse(tr("Only text can be compared."))
    return contents[0].decode("utf-8", "replace"), contents[1].decode("utf-8", "replace")


def file_name(row: Row) -> str:
    """A name to save an entry under."""
    name = re.sub(r"[^\w.\- ]+", "_", row.about.source.rpartition("/")[2])[:80].strip(" .")
    if name and "." in name:
        return name
    return f"{name or row.about.tool or 'entry'}-{row.stored.digest.hex[:8]}.txt"


def named(row: Row) -> str:
    return f"{row.about.source or row.about.tool} · {row.stored.digest.short}"


def consequences(row: Row, uses: int) -> str:
    """What forgetting means, said before it is done."""
    return "\n\n".join(
        [
            tr("{name}, {size}", name=named(row), size=size(row.stored.size)),
            tr(
                "The entry is removed from the cache, the index, the journal and the backups. Files you exported earlier are not changed."
            ),
            count(
                uses,
                "{n} message refers to this entry and will show that it was forgotten.",
                "{n} messages refer to this entry and will show that it was forgotten.",
            ),
            tr("After that, neither you nor the agent can recall the entry. This can't be undone."),
        ]
    )
