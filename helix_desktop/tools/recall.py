"""The tools of builtin_context_cache for the agent inside: recall, search and compact what is in the cache."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import Cache
from helix_desktop.errors import NotThere, WrongUse
from helix_desktop.tools.grep import content_of, grep, shown
from helix_desktop.tools.tool import Arguments, Result, Run, Tool, Use, fields, text, whole

PAGE_TOKENS = 3_500  # below what admission holds back, so that a recall never goes in a circle
_PAGE_BYTES = 24_000
_PIECE = 1 << 20
_LINES = re.compile(r"\s*(\d{1,12})\s*(?:-\s*(\d{1,12})?\s*)?")
_HEX = re.compile(r"[0-9a-f]{4,64}")

Compact = Callable[[Digest, str], Awaitable[str]]  # the entry, and what is needed of it
History = Callable[[str, str], Awaitable[str]]  # the conversation, and the fold


def tools(compact: Compact | None = None, history: History | None = None) -> tuple[Tool, ...]:
    """The tools there are; what has nobody to do it is not offered."""
    out = [Tool("recall_cached_content", _RECALL, _RECALL_SCHEMA, recall_cached_content)]
    out.append(Tool("search_cached_content", _SEARCH, _SEARCH_SCHEMA, search_cached_content))
    if compact is not None:
        out.append(Tool("compact_cached_content", _COMPACT, _COMPACT_SCHEMA, _compacting(compact)))
    if history is not None:
        out.append(Tool("recall_history", _HISTORY, _HISTORY_SCHEMA, _recounting(history)))
    return tuple(out)


def _compacting(compact: Compact) -> Run:
    async def compact_cached_content(args: Arguments, use: Use) -> Result:
        digest = await found(use.cache, args.text("sha256"))
        return Result(await compact(digest, args.text("keep")), source=digest.short)

    return compact_cached_content


def _recounting(history: History) -> Run:
    async def recall_history(args: Arguments, use: Use) -> Result:
        return Result(await history(use.context.conversation, args.text("fold")), source=args.text("fold"))

    return recall_history


async def found(cache: Cache, name: str) -> Digest:
    """The entry a model means: all 64 digits of its hash, or so many of the first that only one fits."""
    name = name.strip().strip("\"'`").lower()
    if not _HEX.fullmatch(name):
        raise WrongUse(f"{name[:80]!r} is no hash: it takes 64 hexadecimal digits, or the first 4 at least.")
    if len(name) < 64:
        return await cache.resolve(name)
    digest = Digest.parse(name)
    await cache.about(digest)
    return digest


async def recall_cached_content(args: Arguments, use: Use) -> Result:
    digest = await found(use.cache, args.text("sha256"))
    entry = await use.cache.about(digest)
    source = f"{digest.short} {entry.about.source}".strip()
    if pattern := args.text("grep"):
        matches = await grep(
            pattern, content_of("", _pieces(use.cache, entry.stored)), context=args.number("context", 0)
        )
        return Result(shown(matches) or f"[no line matches {pattern}]", source=source, note=f"{matches.hits:,} lines")
    first, last = _span(args.text("lines"))
    lines = await _lines(use.cache, entry.stored, first, last)
    page, until = _page(use, lines, first)
    if not lines:
        raise NotThere(f"The entry has {entry.stored.lines:,} lines; there is no line {first:,}.")
    whole_entry = first == 1 and until >= entry.stored.lines
    head = "" if whole_entry else f"[lines {first}-{until} of {entry.stored.lines:,}]\n"
    more = "" if until >= (last or entry.stored.lines) else f'\n[go on with lines="{until + 1}-{last or ""}"]'
    return Result(f"{head}{page}{more}", source=source, note=f"lines {first}-{until}")


def _span(words: str) -> tuple[int, int]:
    if not words.strip():
        return 1, 0
    match = _LINES.fullmatch(words)
    if match is None:
        raise WrongUse(f"lines is written as '10-40', '10-' or '10', not {words[:40]!r}.")
    first = max(1, int(match[1]))
    last = int(match[2]) if match[2] else (0 if "-" in words else first)
    if last and last < first:
        raise WrongUse(f"In lines, {last} lies before {first}.")
    return first, last


async def _pieces(cache: Cache, stored: Stored) -> AsyncIterator[bytes]:
    for start in range(0, stored.size, _PIECE):
        yield await cache.read(stored.digest, start, _PIECE)


async def _lines(cache: Cache, stored: Stored, first: int, last: int) -> list[str]:
    """The wanted lines, up to about a page; what lies before is passed over without being kept."""
    number, kept, size, rest = 1, [], 0, b""
    async for piece in _pieces(cache, stored):
        if number < first and number + piece.count(b"\n") < first:
            number += piece.count(b"\n")
            continue
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if number >= first and (not last or number <= last) and size <= _PAGE_BYTES:
                kept.append(line)
                size += len(line) + 1
            number += 1
        if size > _PAGE_BYTES or (last and number > last):
            break
    else:
        if rest and number >= first and (not last or number <= last):
            kept.append(rest)
    return [line.decode("utf-8", "replace") for line in kept]


def _page(use: Use, lines: list[str], first: int) -> tuple[str, int]:
    """As many lines as fit on a page, and the number of the last; one line that is too long is cut, and that is said."""
    count = len(lines)
    while count > 1 and use.tokens.count("\n".join(lines[:count])) > PAGE_TOKENS:
        count = max(1, count * 3 // 4)
    page = "\n".join(lines[:count])
    while use.tokens.count(page) > PAGE_TOKENS:
        page = page[: len(page) * 3 // 4]
        if use.tokens.count(page) <= PAGE_TOKENS:
            page += "\n[this line is longer than a page and was cut; use grep to look into it]"
            break
    return page, first + count - 1


async def search_cached_content(args: Arguments, use: Use) -> Result:
    query = args.text("query").strip()
    if not query:
        raise WrongUse("A query is needed.")
    limit = min(max(args.number("limit", 10), 1), 50)
    hits = await use.index.search(query, tool=args.text("tool"), limit=limit, entries_only=True)
    rows = []
    for hit in hits:
        name = hit.digest.hex if hit.digest else f"message {hit.seq}"
        about = " ".join(part for part in (hit.about.tool, hit.about.source) if part)
        rows.append(f"{name}  {about}  line {hit.line}\n    {' '.join(hit.snippet.split())[:300]}")
    return Result(
        "\n".join(rows) or f"[nothing in the cache contains {query}]", source=query, note=f"{len(rows)} found"
    )


_HASH = text("The hash from a marker, an excerpt or a search; its first digits are enough where only one begins so")
_RECALL = "Bring back content from the cache: all of it page by page, some of its lines, or the lines that match."
_RECALL_SCHEMA = fields(
    "sha256",
    sha256=_HASH,
    lines=text("Only these lines, such as 10-40"),
    grep=text("Only lines that match this regular expression"),
    context=whole("With grep: lines to show around each match"),
)
_SEARCH = "Search everything in the cache: tool outputs, files and documents of this workspace's conversations."
_SEARCH_SCHEMA = fields(
    "query", query=text("Words to find"), tool=text("Only outputs of this tool"), limit=whole("At most so many", 1)
)
_COMPACT = "Have a model read an entry of the cache, however long, and write down what you need of it."
_COMPACT_SCHEMA = fields("sha256", "keep", sha256=_HASH, keep=text("What you need of it"))
_HISTORY = "Show the messages that a handover or another fold stands for, word for word."
_HISTORY_SCHEMA = fields("fold", fold=text("The fold's name, as the summary gives it"))
