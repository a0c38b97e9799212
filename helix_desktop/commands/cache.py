"""`cache`: put content in, get it out by its hash, list, search, verify, count and collect."""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop.commands import as_json, minute, on_workspace, open_workspace
from helix_desktop.commands.open_workspace import Work, say_json
from helix_desktop.console import Console

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.engine.catalogue import Row
    from helix_desktop.store.workspace import Workspace

STANDARD = Path("-")
LONGEST = 18  # digits: what a database takes as a number
BY_NAME = {
    ".json": "application/json",
    ".xml": "application/xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".pdf": "application/pdf",
}


def add(nouns: Subparsers) -> None:
    cache = nouns.add_parser("cache", help="store, find and verify content in a workspace's cache")
    verbs = cache.add_subparsers(required=True, metavar="VERB")
    one = _verb(verbs, "put", "store a file or standard input, and print its hash", put)
    one.add_argument("file", type=Path, metavar="FILE", help="the file; - reads standard input")
    one.set_defaults(run=_put, counts=False)
    one = _verb(verbs, "get", "write an entry's bytes to a file or standard output", get)
    one.add_argument("hash", metavar="HASH", help="the hash of an entry, or the first part of it")
    one.add_argument("--output", "-o", type=Path, metavar="FILE", default=STANDARD)
    one.set_defaults(
        run=lambda arguments: open_workspace.run(arguments, target=_file(arguments.output)), counts=False, reads=True
    )
    one = _verb(verbs, "list", "list entries, newest first", list_entries)
    one.add_argument("--tool", default="", help="list only outputs of this tool")
    one.add_argument("--sort", default="time", choices=("time", "tool", "source", "size", "tokens", "uses"))
    one.add_argument("--limit", type=_count, default=50, metavar="N", help="0 means all")
    one.set_defaults(reads=True)
    one = _verb(verbs, "search", "find entries that contain certain words", search)
    one.add_argument("words", nargs="+", metavar="WORD")
    one.add_argument("--tool", default="", help="search only outputs of this tool")
    one.add_argument("--limit", type=_count, default=20, metavar="N", help="0 means all")
    one.set_defaults(reads=True)
    _verb(verbs, "verify", "read every entry and compare it with its hash", verify).set_defaults(reads=True)
    _verb(verbs, "stats", "show how much is stored", stats).set_defaults(reads=True)
    one = _verb(verbs, "collect", "remove entries that no message uses, except those you stored yourself", collect)
    one.add_argument(
        "--to", type=_count, default=0, metavar="BYTES", help="stop when the cache is this size or smaller"
    )


def _verb(verbs: Subparsers, name: str, sentence: str, work: Work) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    on_workspace(one)
    as_json(one)
    one.set_defaults(run=open_workspace.run, work=work)
    return one


def _put(arguments: argparse.Namespace) -> int:
    source = _file(arguments.file)
    return open_workspace.run(arguments, source=source, gather=source is None)


def _file(path: Path) -> Path | None:
    return None if path == STANDARD else path


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number, 0 or greater")
    return int(text)


async def put(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.engine.ports import About

    name = "" if arguments.file == STANDARD else arguments.file.name
    first = await console.read()
    stored = await workspace.cache.put(_pieces(first, console), About(source=name, media_type=media_type(name, first)))
    if arguments.json:
        await say_json(console, {"sha256": stored.digest.hex, "size": stored.size, "media_type": stored.media_type})
    else:
        await console.say(stored.digest.hex)
    if over := await workspace.over_limit():
        await console.complain(over_limit(workspace, over))
    return 0


def over_limit(workspace: Workspace, over: int) -> str:
    """What to say, and what can be done: it is the user who decides."""
    limit = workspace.settings.limit
    return (
        f"The cache is {over:,} bytes over its limit of {limit:,} bytes. `helix-desktop cache collect --workspace"
        f" {workspace.id} --to {limit}` removes what no message uses; or raise limits.cache_bytes in"
        f" {workspace.folder / 'workspace.toml'}. Nothing is removed automatically."
    )


async def _pieces(first: bytes, console: Console) -> AsyncIterator[bytes]:
    piece = first
    while piece:
        yield piece
        piece = await console.read()


def media_type(name: str, beginning: bytes) -> str:
    """By the name where it says so, else text if the beginning is text."""
    known = BY_NAME.get(Path(name).suffix.lower())
    if known:
        return known
    try:
        beginning[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < min(len(beginning), 4096) - 4:  # not just a character cut in two
            return "application/octet-stream"
    return "application/octet-stream" if b"\0" in beginning[:4096] else "text/plain"


async def get(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    digest = await workspace.cache.resolve(arguments.hash)
    inside = arguments.json and arguments.output == STANDARD  # the JSON is the output, so the content goes into it
    content, size = bytearray(), 0
    async for piece in workspace.cache.stream(digest):
        size += len(piece)
        if inside:
            content += piece
        else:
            await console.write(piece)
    if arguments.json:
        await say_json(console, {"sha256": digest.hex, "size": size, **(_readable(bytes(content)) if inside else {})})
    return 0


def _readable(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


async def list_entries(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.engine.catalogue import Filter, Sort

    await open_workspace.caught_up(workspace, console)
    chosen = Filter(tool=arguments.tool)
    rows = await workspace.index.entries(
        chosen,
        sort=Sort(arguments.sort),
        descending=arguments.sort not in {"tool", "source"},
        limit=arguments.limit or -1,
    )
    if arguments.json:
        await say_json(console, [_described(row) for row in rows])
        return 0
    for row in rows:
        when = minute(row.time)
        about = f"{row.about.tool or 'by hand'}  {row.about.source}".rstrip()
        await console.say(f"{row.stored.digest.hex[:16]}  {row.stored.size:>13,}  {row.tokens:>10,}  {when}  {about}")
    if (more := await workspace.index.count(chosen) - len(rows)) > 0:
        await console.complain(f"{more:,} more; --limit 0 lists all.")
    return 0


def _described(row: Row) -> dict[str, Any]:
    return {
        "sha256": row.stored.digest.hex,
        "size": row.stored.size,
        "on_disk": row.kept,
        "lines": row.stored.lines,
        "media_type": row.stored.media_type,
        "tokens": row.tokens,
        "tool": row.about.tool,
        "source": row.about.source,
        "time": row.time,
        "uses": row.uses,
        "pinned": row.pinned,
    }


async def search(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    await open_workspace.caught_up(workspace, console)
    hits = await workspace.index.search(
        " ".join(arguments.words), tool=arguments.tool, limit=arguments.limit or -1, entries_only=True
    )
    found = [hit for hit in hits if hit.digest is not None]
    if arguments.json:
        places = [
            {
                "sha256": str(hit.digest),
                "line": hit.line,
                "snippet": hit.snippet,
                "tool": hit.about.tool,
                "source": hit.about.source,
            }
            for hit in found
        ]
        await say_json(console, places)
    else:
        for hit in found:
            about = " ".join(filter(None, (hit.about.tool, hit.about.source)))
            await console.say(f"{str(hit.digest)[:16]}:{hit.line}  {about}\n    {' '.join(hit.snippet.split())}")
    if not found:
        await console.complain(f"Nothing in this workspace's cache contains {' '.join(arguments.words)!r}.")
    return 0 if found else 1


async def verify(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    begun = time.monotonic()
    result = await workspace.cache.verify()
    damaged = [{"sha256": digest.hex, "why": why} for digest, why in result.damaged]
    if arguments.json:
        figures = {"entries": result.checked, "bytes": result.bytes, "damaged": damaged, "notes": list(result.notes)}
        await say_json(console, figures)
    else:
        for line in (*(f"{one['sha256']}  {one['why']}" for one in damaged), *result.notes):
            await console.say(line)
        seconds = time.monotonic() - begun
        await console.say(
            f"{result.checked:,} entries, {result.bytes:,} bytes, {len(damaged)} damaged; {seconds:.1f} s"
        )
    return 1 if damaged or result.notes else 0


async def stats(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    await open_workspace.caught_up(workspace, console)
    found = await workspace.index.stats()
    over = await workspace.over_limit()
    figures = {**found.named(), "limit": workspace.settings.limit, "over_limit": over}
    if arguments.json:
        await say_json(console, figures)
    else:
        for name, figure in figures.items():
            await console.say(f"{name.replace('_', ' '):<24}{figure:>18,}")
    if over:
        await console.complain(over_limit(workspace, over))
    return 0


async def collect(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    result = await workspace.cache.collect(arguments.to)
    if arguments.json:
        await say_json(console, {"removed": result.entries, "bytes": result.bytes})
    else:
        await console.say(f"{result.entries:,} entries removed, {result.bytes:,} bytes freed.")
    if (left := await workspace.index.kept()) > arguments.to > 0:
        await console.complain(
            f"{left:,} bytes are still in use, by entries that messages use, that were stored by hand, or that are pinned."
        )
    return 0
