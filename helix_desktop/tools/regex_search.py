"""Searches content of any size with a regular expression, in another process, to
enforce a time limit.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import cast

from helix_desktop.engine.content_recall import PAGE_BYTES
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.starter import Process, end_process, start_isolated_script
from helix_desktop.tools import regex_search_worker

SECONDS = 10.0
_LONGEST_PATTERN = 10_000


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line to show: a match, or a line near one."""

    name: str
    number: int
    text: str
    is_match: bool


@dataclass(slots=True)
class GrepResult:
    """`match_count` counts all matching lines, even those not in `lines`.
    `is_cut_by_time`: time ran out.
    """

    lines: list[FoundLine] = field(default_factory=list)
    match_count: int = 0
    is_cut_by_time: bool = False


@dataclass(frozen=True, slots=True)
class GrepPiece:
    """A piece of named content. `has_more`: the next piece continues it."""

    name: str
    content: bytes
    has_more: bool = False


async def grep_pieces(
    pattern: str,
    pieces: AsyncIterable[GrepPiece],
    *,
    context: int = 0,
    limit: int = 200,
    ignore_case: bool = False,
    seconds: float = SECONDS,
) -> GrepResult:
    """Return the lines that match, or those found when time is up. Raises InvalidInput
    for a bad pattern.
    """
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        raise InvalidInput(f"Specify a pattern of 1 to {_LONGEST_PATTERN:,} characters.")
    options: dict[str, object] = {"pattern": pattern, "most": limit, "ignore_case": ignore_case}
    # The worker normally ends earlier. This limit applies only if this program is killed.
    options |= {"context": min(max(context, 0), 50), "seconds": int(seconds) + 30}
    process = await start_isolated_script(Path(regex_search_worker.__file__), line_limit=1 << 20)
    lines: list[FoundLine] = []
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as both:
            both.create_task(_send_pieces(process, options, pieces))
            answer = both.create_task(_receive_found_lines(process, pattern, lines))
        return GrepResult(lines, answer.result())
    except TimeoutError:
        return GrepResult(lines, sum(line.is_match for line in lines), is_cut_by_time=True)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        await end_process(process)
        # Waits until the pipe is closed, because older Pythons complain about errors
        # that nobody retrieves.
        stdin = cast(asyncio.StreamWriter, process.stdin)
        stdin.close()
        with suppress(OSError):
            await stdin.wait_closed()


async def _send_pieces(
    process: Process, options: dict[str, object], pieces: AsyncIterable[GrepPiece]
) -> None:
    stdin = cast(asyncio.StreamWriter, process.stdin)
    try:
        stdin.write(json.dumps(options).encode() + b"\n")
        async for piece in pieces:
            about = {"name": piece.name, "size": len(piece.content), "more": piece.has_more}
            stdin.write(json.dumps(about).encode() + b"\n")
            stdin.write(piece.content)
            await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # The worker process has printed the reason.


async def _receive_found_lines(process: Process, pattern: str, lines: list[FoundLine]) -> int:
    async for row in cast(asyncio.StreamReader, process.stdout):
        said = json.loads(row)
        if "error" in said:
            raise InvalidInput(
                f"{pattern[:100]!r} is not a valid regular expression: {said['error']}."
            )
        if "hits" in said:
            return int(said["hits"])
        lines.append(FoundLine(said["name"], said["line"], said["text"], said["hit"]))
    return sum(line.is_match for line in lines)


async def wrap_chunks_for_grep(
    name: str, content: AsyncIterable[bytes]
) -> AsyncIterator[GrepPiece]:
    async for part in content:
        yield GrepPiece(name, part, has_more=True)
    yield GrepPiece(name, b"")


async def grep_entry_lines(pattern: str, content: AsyncIterator[bytes], context: int) -> str:
    """Implement `engine.content_recall.Grep` in a killable process. Returns up to a
    page of lines.
    """
    found = format_found_lines(
        await grep_pieces(pattern, wrap_chunks_for_grep("", content), context=context)
    )
    if len(found) <= PAGE_BYTES // 2:
        return found
    return found[: PAGE_BYTES // 2] + "\n[… there is more; use a narrower pattern, or lines]"


def format_found_lines(found: GrepResult) -> str:
    """Format matches as `name:12: the line` and lines near them as `name-11- the line`,
    in groups.
    """
    rows: list[str] = []
    last = ("", 0)
    for line in found.lines:
        if (
            rows
            and (line.name, line.number) != (last[0], last[1] + 1)
            and any(not one.is_match for one in found.lines)
        ):
            rows.append("--")
        mark = ":" if line.is_match else "-"
        prefix = f"{line.name}{mark}" if line.name else ""
        rows.append(f"{prefix}{line.number}{mark} {line.text}")
        last = (line.name, line.number)
    shown_hits = sum(line.is_match for line in found.lines)
    if found.match_count > shown_hits:
        rows.append(f"[… {found.match_count - shown_hits:,} more matching lines]")
    if found.is_cut_by_time:
        rows.append(
            "[the search was stopped: it took too long. Use a simpler pattern or fewer files.]"
        )
    return "\n".join(rows)
