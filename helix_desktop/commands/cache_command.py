"""`cache`: stores content, reads it by its hash, lists, searches, verifies, counts and
cleans up entries.
"""

import asyncio
import base64
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_search_arguments,
    add_workspace_option,
    parse_number,
)
from helix_desktop.commands.workspace_access import print_result, run_on_workspace
from helix_desktop.console import Console
from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort, EntryUse
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.errors import format_things
from helix_desktop.histories.history_finding import HistoryPlaces, list_json_files_of_histories
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.store.stored_workspace import StoredWorkspace

STANDARD = Path("-")
MOST_HITS = 1_000_000  # The maximum number of hits that a search without a limit shows.
BY_NAME = {f".{kind}": f"application/{kind}" for kind in ("json", "xml", "pdf")}
BY_NAME |= {".png": "image/png", ".jpg": "image/jpeg"}


def _run_cache_get(arguments: Namespace) -> int:
    return workspace_access.run_on_workspace(arguments, target=file_unless_dash(arguments.output))


def _run_cache_put(arguments: Namespace) -> int:
    source = file_unless_dash(arguments.file)
    return workspace_access.run_on_workspace(arguments, source=source, gather=source is None)


def file_unless_dash(path: Path) -> Path | None:
    if path == STANDARD:
        return None
    return path


async def put_input_into_cache(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    name = ""
    if arguments.file != STANDARD:
        name = arguments.file.name
    first_piece = await console.read_input()
    origin = EntryOrigin(source=name, media_type=guess_media_type(name, first_piece))
    pieces = _iterate_input_pieces(first_piece, console)
    stored = await workspace.cache.store_content(pieces, origin)
    result = {"sha256": stored.digest.hex, "size": stored.size, "media_type": stored.media_type}
    await print_result(arguments, console, result, stored.digest.hex)
    over = await workspace.bytes_over_limit()
    if over:
        await console.print_error(describe_over_limit(workspace, over))
    return 0


def describe_over_limit(workspace: StoredWorkspace, over: int) -> str:
    limit = workspace.settings.limit
    return (
        f"The cache is {over:,} bytes over its limit of {limit:,} bytes. `helix-desktop cache collect --workspace"
        f" {workspace.id} --to {limit}` removes entries that no message uses. You can also raise limits.cache_bytes in"
        f" {workspace.folder / 'workspace.toml'}. Nothing is removed automatically."
    )


async def _iterate_input_pieces(first: bytes, console: Console) -> AsyncIterator[bytes]:
    piece = first
    while piece:
        yield piece
        piece = await console.read_input()


def guess_media_type(name: str, beginning: bytes) -> str:
    """Guesses the media type from the file name, or else whether the beginning looks like text."""
    by_name = BY_NAME.get(Path(name).suffix.lower())
    if by_name:
        return by_name
    sample = beginning[:4096]
    if b"\0" in sample:
        return "application/octet-stream"
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        is_at_end = error.start >= len(sample) - 4  # The sample may end within a character.
        if not is_at_end:
            return "application/octet-stream"
    return "text/plain"


async def output_entry_content(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    digest = await workspace.cache.resolve_prefix(arguments.hash)
    becomes_part_of_json = arguments.json and arguments.output == STANDARD
    content = bytearray()
    size = 0
    async for piece in workspace.cache.stream_content(digest):
        size += len(piece)
        if becomes_part_of_json:
            content += piece
        else:
            await console.write_output(piece)
    result: dict[str, Any] = {"sha256": digest.hex, "size": size}
    if becomes_part_of_json:
        result |= _text_or_base64(bytes(content))
    return await print_result(arguments, console, result)


def _text_or_base64(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


async def print_entry_list(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    await workspace_access.wait_for_index(workspace, console)
    chosen = EntryFilter(tool=arguments.tool)
    rows = await workspace.index.entries_page(
        chosen,
        sort=EntrySort(arguments.sort),
        descending=arguments.sort not in {"tool", "source"},
        limit=arguments.limit or -1,
    )
    listed: list[dict[str, Any]] = []
    lines: list[str] = []
    for row in rows:
        listed.append(row.as_json_table() | {"on_disk": row.kept})
        figures = f"{row.stored.size:>13,}  {row.tokens:>10,}  {format_local_time(row.time)}"
        origin = f"{row.about.tool or 'by hand'}  {row.about.source}".rstrip()
        lines.append(f"{row.stored.digest.hex[:16]}  {figures}  {origin}")
    await print_result(arguments, console, listed, *lines)
    if not arguments.json:
        more = await workspace.index.count_entries(chosen) - len(rows)
        if more > 0:
            await console.print_error(f"{more:,} more; --limit 0 lists all.")
    return 0


async def print_search_hits(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints entries, or without `only_entries` also messages, with the conversations
    that have them.
    """
    await workspace_access.wait_for_index(workspace, console)
    words = " ".join(arguments.words)
    hits = await workspace.index.search_index(
        words,
        tool=arguments.tool,
        limit=arguments.limit or MOST_HITS,
        entries_only=arguments.only_entries,
    )
    rows: dict[str, StoredConversation] = {}
    if not arguments.only_entries:
        listed = await workspace.journal.list_conversations()
        rows = {row.id: row for row in listed if not row.trashed}
    answers: list[dict[str, Any]] = []
    lines: list[str] = []
    for hit in hits:
        answer: dict[str, Any] = {
            "sha256": str(hit.digest or ""),
            "line": hit.line,
            "snippet": hit.snippet,
            "tool": hit.about.tool,
            "source": hit.about.source,
        }
        where = f"{str(hit.digest)[:16]}:{hit.line}"
        if not arguments.only_entries:
            use = await _find_use_in_conversation(workspace, hit, rows)
            row = rows.get(use.conversation)
            if row is None:
                continue
            title = row.title or row.begins
            answer |= {"conversation": row.id, "title": title, "seq": use.seq}
            where = f"{row.id}  [{use.seq}]  {title}"
            if row.archived:
                where += "  (archived)"
        answers.append(answer)
        head = f"{where}  {hit.about.tool} {hit.about.source}".rstrip()
        lines.append(f"{head}\n    {' '.join(hit.snippet.split())}")
    await print_result(arguments, console, answers, *lines)
    if lines:
        return 0
    searched = "conversations"
    if arguments.only_entries:
        searched = "cache"
    await console.print_error(f"Nothing in this workspace's {searched} contains {words!r}.")
    return 1


async def _find_use_in_conversation(
    workspace: StoredWorkspace, hit: SearchHit, rows: Mapping[str, StoredConversation]
) -> SearchHit | EntryUse:
    """Returns where one of these conversations uses an entry, or the hit itself."""
    if hit.digest:
        for use in await workspace.index.find_entry_uses(hit.digest):
            if use.conversation in rows:
                return use
    return hit


async def verify_all_entries(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    begun = time.monotonic()
    result = await workspace.cache.verify_cache()
    repairs: Sequence[str] = ()
    if arguments.repair and (result.damaged or result.notes):
        places = HistoryPlaces.of_this_user()
        histories = await asyncio.to_thread(list_json_files_of_histories, places)
        repairs = await workspace.repair_cache(histories)
        result = await workspace.cache.verify_cache()
    damaged = [{"sha256": digest.hex, "why": why} for digest, why in result.damaged]
    figures = {
        "entries": result.checked,
        "bytes": result.bytes,
        "damaged": damaged,
        "notes": list(result.notes),
        "checkpoint_bytes": result.checkpoint_bytes,
        "repairs": list(repairs),
    }
    lines = list(repairs)
    lines += [f"{entry['sha256']}  {entry['why']}" for entry in damaged]
    lines += result.notes
    seconds = time.monotonic() - begun
    lines.append(
        f"{result.checked:,} entries, {result.bytes:,} bytes, {len(damaged)} damaged; {seconds:.1f} s"
    )
    if result.checkpoint_bytes:
        lines.append(
            f"Also read: {result.checkpoint_bytes:,} bytes of files that checkpoints keep."
        )
    await print_result(arguments, console, figures, *lines)
    if damaged or result.notes:
        return 1
    return 0


async def print_cache_figures(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    await workspace_access.wait_for_index(workspace, console)
    computed = await workspace.index.compute_figures()
    over = await workspace.bytes_over_limit()
    figures = dict(computed.figures_by_name())
    figures["limit"] = workspace.settings.limit
    figures["over_limit"] = over
    lines = [f"{name.replace('_', ' '):<24}{figure:>18,}" for name, figure in figures.items()]
    await print_result(arguments, console, figures, *lines)
    if over:
        await console.print_error(describe_over_limit(workspace, over))
    return 0


async def collect_unused_entries(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    result = await workspace.cache.remove_unused_down_to(arguments.to)
    removed = {"removed": result.entries, "bytes": result.bytes}
    line = f"Removed {format_things(result.entries, 'entry', 'entries')} ({result.bytes:,} bytes)."
    await print_result(arguments, console, removed, line)
    left = await workspace.index.measure_kept_bytes()
    if arguments.to > 0 and left > arguments.to:
        await console.print_error(
            f"{left:,} bytes belong to entries that are used by messages, were stored by hand, or are pinned."
        )
    return 0


def add_cache_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "cache", "store, find and verify content in a workspace's cache")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_cache_put(verbs)
    _add_cache_get(verbs)
    _add_cache_list(verbs)
    _add_cache_search(verbs)
    _add_cache_verify(verbs)
    _add_cache_stats(verbs)
    _add_cache_collect(verbs)


def _add_cache_put(verbs: Subparsers) -> None:
    command = add_command(verbs, "put", "store a file or standard input, and print its hash")
    add_workspace_option(command)
    command.add_argument(
        "file", metavar="FILE", type=Path, help="the file to store; - reads standard input"
    )
    add_json_option(command)
    command.set_defaults(run=_run_cache_put, work=put_input_into_cache, counts=False)


def _add_cache_get(verbs: Subparsers) -> None:
    command = add_command(verbs, "get", "write an entry's bytes to a file or standard output")
    add_workspace_option(command)
    command.add_argument(
        "hash", metavar="HASH", help="the hash of an entry, or the first part of it"
    )
    command.add_argument("--output", "-o", metavar="FILE", type=Path, default="-")
    add_json_option(command)
    command.set_defaults(run=_run_cache_get, work=output_entry_content, counts=False, reads=True)


def _add_cache_list(verbs: Subparsers) -> None:
    command = add_command(verbs, "list", "list entries, newest first")
    add_workspace_option(command)
    command.add_argument(
        "--tool", metavar="TOOL", default="", help="list only outputs of this tool"
    )
    command.add_argument(
        "--sort", choices=["time", "tool", "source", "size", "tokens", "uses"], default="time"
    )
    command.add_argument(
        "--limit",
        metavar="N",
        type=parse_number,
        default=50,
        help="show at most N (default: 50; 0 means all)",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=print_entry_list, counts=True, reads=True)


def _add_cache_search(verbs: Subparsers) -> None:
    command = add_command(verbs, "search", "find entries that contain certain words")
    add_workspace_option(command)
    add_search_arguments(command)
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=print_search_hits, counts=True, only_entries=True, reads=True
    )


def _add_cache_verify(verbs: Subparsers) -> None:
    command = add_command(verbs, "verify", "read every entry and compare it with its hash")
    add_workspace_option(command)
    command.add_argument(
        "--repair",
        action="store_true",
        help="repair damaged files, and restore lost entries from where else they are",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=verify_all_entries, counts=True, reads=True)


def _add_cache_stats(verbs: Subparsers) -> None:
    command = add_command(verbs, "stats", "show how much is stored")
    add_workspace_option(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=print_cache_figures, counts=True, reads=True)


def _add_cache_collect(verbs: Subparsers) -> None:
    command = add_command(
        verbs,
        "collect",
        "remove cache entries that no message uses, except those you stored yourself",
    )
    add_workspace_option(command)
    command.add_argument(
        "--to",
        metavar="BYTES",
        type=parse_number,
        default=0,
        help="stop when the cache is this size or smaller",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=collect_unused_entries, counts=True)
