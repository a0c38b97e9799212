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
from helix_desktop.console import Console, put_on_one_line
from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort, EntryUse
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.errors import format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.history_finding import list_json_files_of_histories
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.store.stored_workspace import StoredWorkspace

STANDARD = Path("-")
MOST_HITS = 1_000_000  # The maximum number of hits that a search without a limit shows.
SAMPLE_BYTES = 4096  # So much of the beginning decides whether content is text.
LONGEST_CHARACTER_BYTES = 4  # In UTF-8.
NO_LIMIT = -1  # The index takes this number for all entries.
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
    """Stores the file or the input as an entry, and prints its hash."""
    file_name = ""
    if arguments.file != STANDARD:
        file_name = arguments.file.name
    # The media type is guessed from the beginning, so this much is read first.
    first_piece = await console.read_input()
    media_type = guess_media_type(file_name, first_piece)
    origin = EntryOrigin(source=file_name, media_type=media_type)
    pieces = _iterate_input_pieces(first_piece, console)
    stored = await workspace.cache.store_content(pieces, origin)

    result = {"sha256": stored.digest.hex, "size": stored.size, "media_type": stored.media_type}
    await print_result(arguments, console, result, stored.digest.hex)
    await _warn_if_over_limit(workspace, console)
    return 0


async def _warn_if_over_limit(workspace: StoredWorkspace, console: Console) -> None:
    bytes_over_limit = await workspace.bytes_over_limit()
    if bytes_over_limit:
        await console.print_error(describe_over_limit(workspace, bytes_over_limit))


def describe_over_limit(workspace: StoredWorkspace, bytes_over_limit: int) -> str:
    limit = workspace.settings.limit
    return (
        f"The cache is {bytes_over_limit:,} bytes over its limit of {limit:,} bytes. `helix-desktop cache collect --workspace"
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
    type_of_suffix = BY_NAME.get(Path(name).suffix.lower())
    if type_of_suffix:
        return type_of_suffix

    sample = beginning[:SAMPLE_BYTES]
    if b"\0" in sample:
        return "application/octet-stream"
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # The sample may end within a character.
        is_at_end = error.start >= len(sample) - LONGEST_CHARACTER_BYTES
        if not is_at_end:
            return "application/octet-stream"
    return "text/plain"


async def output_entry_content(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Writes an entry's bytes to the file or the output. With `--json` and no file, they become
    part of the JSON.
    """
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
    """Lists entries: names in alphabetical order, figures and times from the largest down."""
    await workspace_access.wait_for_index(workspace, console)
    entry_filter = EntryFilter(tool=arguments.tool)
    sorts_by_name = arguments.sort in {"tool", "source"}
    rows = await workspace.index.entries_page(
        entry_filter,
        sort=EntrySort(arguments.sort),
        descending=not sorts_by_name,
        limit=arguments.limit or NO_LIMIT,
    )
    listed: list[dict[str, Any]] = []
    lines: list[str] = []
    for row in rows:
        listed.append(row.as_json_table() | {"on_disk": row.kept})
        figures = f"{row.stored.size:>13,}  {row.tokens:>10,}  {format_local_time(row.time)}"
        tool = row.about.tool or "by hand"
        origin = put_on_one_line(f"{tool}  {row.about.source}")
        lines.append(f"{row.stored.digest.hex[:16]}  {figures}  {origin}")
    await print_result(arguments, console, listed, *lines)

    if arguments.json:
        return 0
    if not rows:
        await console.print_error("There are no stored outputs.")
        return 0
    not_listed = await workspace.index.count_entries(entry_filter) - len(rows)
    if not_listed > 0:
        await console.print_error(f"{not_listed:,} more; --limit 0 lists all.")
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
    if arguments.only_entries:
        searched = "cache"
        printed_hits = [_describe_hit_in_cache(hit) for hit in hits]
    else:
        searched = "conversations"
        printed_hits = await _describe_hits_in_conversations(workspace, hits)

    answers = [printed.answer for printed in printed_hits]
    lines = [printed.text for printed in printed_hits]
    await print_result(arguments, console, answers, *lines)
    if not printed_hits:
        await console.print_error(f"Nothing in this workspace's {searched} contains {words!r}.")
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class _PrintedHit:
    """A hit of a search, as it is printed with `--json` and without."""

    answer: dict[str, Any]
    text: str


def _describe_hit_in_cache(hit: SearchHit) -> _PrintedHit:
    where = f"{str(hit.digest)[:16]}:{hit.line}"
    return _PrintedHit(_answer_about_hit(hit), _format_hit(where, hit))


async def _describe_hits_in_conversations(
    workspace: StoredWorkspace, hits: Sequence[SearchHit]
) -> list[_PrintedHit]:
    """Describes hits with the conversation that has them. Those in the trash are left out."""
    rows_by_id: dict[str, StoredConversation] = {}
    for row in await workspace.journal.list_conversations():
        if not row.trashed:
            rows_by_id[row.id] = row

    printed_hits: list[_PrintedHit] = []
    for hit in hits:
        use = await _find_use_in_conversation(workspace, hit, rows_by_id)
        conversation = rows_by_id.get(use.conversation)
        if conversation is None:
            continue
        title = conversation.title or conversation.begins
        answer = _answer_about_hit(hit)
        answer["conversation"] = conversation.id
        answer["title"] = title
        answer["seq"] = use.seq
        where = f"{conversation.id}  [{use.seq}]  {title}"
        if conversation.archived:
            where += "  (archived)"
        printed_hits.append(_PrintedHit(answer, _format_hit(where, hit)))
    return printed_hits


def _answer_about_hit(hit: SearchHit) -> dict[str, Any]:
    return {
        "sha256": str(hit.digest or ""),
        "line": hit.line,
        "snippet": hit.snippet,
        "tool": hit.about.tool,
        "source": hit.about.source,
    }


def _format_hit(where: str, hit: SearchHit) -> str:
    """Returns a line that says where the hit is, and one with the passage that was found."""
    origin = put_on_one_line(f"{hit.about.tool} {hit.about.source}")
    heading = f"{where}  {origin}".rstrip()
    return f"{heading}\n    {put_on_one_line(hit.snippet)}"


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
    """Compares every entry with its hash. With `--repair`, what is damaged is restored from
    where else it is, and everything is compared again.
    """
    start_time = time.monotonic()
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
    for entry in damaged:
        lines.append(f"{entry['sha256']}  {entry['why']}")
    lines += result.notes
    seconds = time.monotonic() - start_time
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
    """Prints how much is in the cache, and a warning if it is over the limit that the user set."""
    await workspace_access.wait_for_index(workspace, console)
    computed = await workspace.index.compute_figures()
    bytes_over_limit = await workspace.bytes_over_limit()
    figures = dict(computed.figures_by_name())
    figures["limit"] = workspace.settings.limit
    figures["over_limit"] = bytes_over_limit
    lines: list[str] = []
    for name, figure in figures.items():
        label = name.replace("_", " ")
        lines.append(f"{label:<24}{figure:>18,}")
    await print_result(arguments, console, figures, *lines)
    if bytes_over_limit:
        await console.print_error(describe_over_limit(workspace, bytes_over_limit))
    return 0


async def collect_unused_entries(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Removes entries that no message uses, oldest first, until the cache is small enough, and
    says if what is left is still more than the user asked for.
    """
    result = await workspace.cache.remove_unused_down_to(arguments.to)
    removed = {"removed": result.entries, "bytes": result.bytes}
    line = f"Removed {format_things(result.entries, 'entry', 'entries')} ({result.bytes:,} bytes)."
    await print_result(arguments, console, removed, line)
    kept_bytes = await workspace.index.measure_kept_bytes()
    if arguments.to > 0 and kept_bytes > arguments.to:
        await console.print_error(
            f"{kept_bytes:,} bytes belong to entries that are used by messages, were stored by hand, or are pinned."
        )
    return 0


def add_cache_commands(nouns: Subparsers) -> None:
    """Declares `cache` and its verbs."""
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
    """Declares `cache list`."""
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
    """Declares `cache verify`."""
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
    """Declares `cache collect`."""
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
