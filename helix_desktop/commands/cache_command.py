"""`cache`: put content in, get it out by its hash, list, search, verify, count and collect."""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop.commands import add_json_option, add_workspace_argument, format_local_minute, workspace_access
from helix_desktop.commands.workspace_access import Work, print_json
from helix_desktop.console import Console

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.engine.entry_catalogue import EntryRow
    from helix_desktop.store.stored_workspace import StoredWorkspace

STANDARD = Path("-")
LONGEST = 18  # The most digits of a number that a database takes.
BY_NAME = {
    ".json": "application/json",
    ".xml": "application/xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".pdf": "application/pdf",
}


def add_cache_command(nouns: Subparsers) -> None:
    cache = nouns.add_parser("cache", help="store, find and verify content in a workspace's cache")
    verbs = cache.add_subparsers(required=True, metavar="VERB")
    one = _add_cache_verb(verbs, "put", "store a file or standard input, and print its hash", put_input_into_cache)
    one.add_argument("file", type=Path, metavar="FILE", help="the file; - reads standard input")
    one.set_defaults(run=_run_put, counts=False)
    one = _add_cache_verb(verbs, "get", "write an entry's bytes to a file or standard output", write_entry_content)
    one.add_argument("hash", metavar="HASH", help="the hash of an entry, or the first part of it")
    one.add_argument("--output", "-o", type=Path, metavar="FILE", default=STANDARD)
    one.set_defaults(
        run=lambda arguments: workspace_access.run_on_workspace(
            arguments, target=_file_or_standard_output(arguments.output)
        ),
        counts=False,
        reads=True,
    )
    one = _add_cache_verb(verbs, "list", "list entries, newest first", print_entry_list)
    one.add_argument("--tool", default="", help="list only outputs of this tool")
    one.add_argument("--sort", default="time", choices=("time", "tool", "source", "size", "tokens", "uses"))
    one.add_argument("--limit", type=_parse_entry_count, default=50, metavar="N", help="0 means all")
    one.set_defaults(reads=True)
    one = _add_cache_verb(verbs, "search", "find entries that contain certain words", print_search_hits)
    one.add_argument("words", nargs="+", metavar="WORD")
    one.add_argument("--tool", default="", help="search only outputs of this tool")
    one.add_argument("--limit", type=_parse_entry_count, default=20, metavar="N", help="0 means all")
    one.set_defaults(reads=True)
    _add_cache_verb(verbs, "verify", "read every entry and compare it with its hash", verify_all_entries).set_defaults(
        reads=True
    )
    _add_cache_verb(verbs, "stats", "show how much is stored", print_cache_figures).set_defaults(reads=True)
    one = _add_cache_verb(
        verbs,
        "collect",
        "remove entries that no message uses, except those you stored yourself",
        collect_unused_entries,
    )
    one.add_argument(
        "--to", type=_parse_entry_count, default=0, metavar="BYTES", help="stop when the cache is this size or smaller"
    )


def _add_cache_verb(verbs: Subparsers, name: str, sentence: str, work: Work) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    add_workspace_argument(one)
    add_json_option(one)
    one.set_defaults(run=workspace_access.run_on_workspace, work=work)
    return one


def _run_put(arguments: argparse.Namespace) -> int:
    source = _file_or_standard_output(arguments.file)
    return workspace_access.run_on_workspace(arguments, source=source, gather=source is None)


def _file_or_standard_output(path: Path) -> Path | None:
    return None if path == STANDARD else path


def _parse_entry_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number, 0 or greater")
    return int(text)


async def put_input_into_cache(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.engine.ports import EntryOrigin

    name = "" if arguments.file == STANDARD else arguments.file.name
    first = await console.read_input()
    stored = await workspace.cache.store_content(
        _input_pieces(first, console), EntryOrigin(source=name, media_type=guess_media_type(name, first))
    )
    if arguments.json:
        await print_json(console, {"sha256": stored.digest.hex, "size": stored.size, "media_type": stored.media_type})
    else:
        await console.print_line(stored.digest.hex)
    if over := await workspace.bytes_over_limit():
        await console.print_error(describe_over_limit(workspace, over))
    return 0


def describe_over_limit(workspace: StoredWorkspace, over: int) -> str:
    """What to say, and what can be done: it is the user who decides."""
    limit = workspace.settings.limit
    return (
        f"The cache is {over:,} bytes over its limit of {limit:,} bytes. `helix-desktop cache collect --workspace"
        f" {workspace.id} --to {limit}` removes what no message uses; or raise limits.cache_bytes in"
        f" {workspace.folder / 'workspace.toml'}. Nothing is removed automatically."
    )


async def _input_pieces(first: bytes, console: Console) -> AsyncIterator[bytes]:
    piece = first
    while piece:
        yield piece
        piece = await console.read_input()


def guess_media_type(name: str, beginning: bytes) -> str:
    """Guesses the media type from the file name, or else returns text when the beginning is valid text."""
    known = BY_NAME.get(Path(name).suffix.lower())
    if known:
        return known
    try:
        beginning[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < min(len(beginning), 4096) - 4:  # The error is not just a character cut in two at the end.
            return "application/octet-stream"
    return "application/octet-stream" if b"\0" in beginning[:4096] else "text/plain"


async def write_entry_content(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    digest = await workspace.cache.resolve_prefix(arguments.hash)
    inside = arguments.json and arguments.output == STANDARD  # The output is JSON, so the content goes into it.
    content, size = bytearray(), 0
    async for piece in workspace.cache.stream_content(digest):
        size += len(piece)
        if inside:
            content += piece
        else:
            await console.write_output(piece)
    if arguments.json:
        await print_json(
            console, {"sha256": digest.hex, "size": size, **(_text_or_base64(bytes(content)) if inside else {})}
        )
    return 0


def _text_or_base64(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


async def print_entry_list(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.engine.entry_catalogue import EntryFilter, EntrySort

    await workspace_access.wait_for_index(workspace, console)
    chosen = EntryFilter(tool=arguments.tool)
    rows = await workspace.index.entries_page(
        chosen,
        sort=EntrySort(arguments.sort),
        descending=arguments.sort not in {"tool", "source"},
        limit=arguments.limit or -1,
    )
    if arguments.json:
        await print_json(console, [_describe_entry_row(row) for row in rows])
        return 0
    for row in rows:
        when = format_local_minute(row.time)
        about = f"{row.about.tool or 'by hand'}  {row.about.source}".rstrip()
        await console.print_line(
            f"{row.stored.digest.hex[:16]}  {row.stored.size:>13,}  {row.tokens:>10,}  {when}  {about}"
        )
    if (more := await workspace.index.count_entries(chosen) - len(rows)) > 0:
        await console.print_error(f"{more:,} more; --limit 0 lists all.")
    return 0


def _describe_entry_row(row: EntryRow) -> dict[str, Any]:
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


async def print_search_hits(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    await workspace_access.wait_for_index(workspace, console)
    hits = await workspace.index.search_index(
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
        await print_json(console, places)
    else:
        for hit in found:
            about = " ".join(filter(None, (hit.about.tool, hit.about.source)))
            await console.print_line(f"{str(hit.digest)[:16]}:{hit.line}  {about}\n    {' '.join(hit.snippet.split())}")
    if not found:
        await console.print_error(f"Nothing in this workspace's cache contains {' '.join(arguments.words)!r}.")
    return 0 if found else 1


async def verify_all_entries(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    begun = time.monotonic()
    result = await workspace.cache.verify_cache()
    damaged = [{"sha256": digest.hex, "why": why} for digest, why in result.damaged]
    if arguments.json:
        figures = {"entries": result.checked, "bytes": result.bytes, "damaged": damaged, "notes": list(result.notes)}
        await print_json(console, figures)
    else:
        for line in (*(f"{one['sha256']}  {one['why']}" for one in damaged), *result.notes):
            await console.print_line(line)
        seconds = time.monotonic() - begun
        await console.print_line(
            f"{result.checked:,} entries, {result.bytes:,} bytes, {len(damaged)} damaged; {seconds:.1f} s"
        )
    return 1 if damaged or result.notes else 0


async def print_cache_figures(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    await workspace_access.wait_for_index(workspace, console)
    found = await workspace.index.stats()
    over = await workspace.bytes_over_limit()
    figures = {**found.figures_by_name(), "limit": workspace.settings.limit, "over_limit": over}
    if arguments.json:
        await print_json(console, figures)
    else:
        for name, figure in figures.items():
            await console.print_line(f"{name.replace('_', ' '):<24}{figure:>18,}")
    if over:
        await console.print_error(describe_over_limit(workspace, over))
    return 0


async def collect_unused_entries(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    result = await workspace.cache.collect_down_to(arguments.to)
    if arguments.json:
        await print_json(console, {"removed": result.entries, "bytes": result.bytes})
    else:
        await console.print_line(f"{result.entries:,} entries removed, {result.bytes:,} bytes freed.")
    if (left := await workspace.index.kept()) > arguments.to > 0:
        await console.print_error(
            f"{left:,} bytes are still in use, by entries that messages use, that were stored by hand, or that are pinned."
        )
    return 0
