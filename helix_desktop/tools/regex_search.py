"""Searches content of any size with a regular expression, in another process, to
enforce a time limit.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import cast

from helix_desktop.engine.content_recall import PAGE_BYTES
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.starter import Process, end_process, start_isolated_script
from helix_desktop.tools import regex_search_worker

SECONDS = 10.0
_LONGEST_PATTERN = 10_000
_PAGE_CHARACTERS = PAGE_BYTES // 2  # The lines shown of an entry have at most so many characters.


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
    `is_cut_by_time`: time ran out. `is_broken_off`: the search ended before all was searched.
    """

    lines: list[FoundLine] = field(default_factory=list)
    match_count: int = 0
    is_cut_by_time: bool = False
    is_broken_off: bool = False


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

    The search runs in a process of its own, because a pattern may take for ever and only a process
    can be ended then. Pieces are sent to it while it sends back what it finds.
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
        match_count = answer.result()
        if match_count is not None:
            return GrepResult(lines, match_count)
        return GrepResult(lines, _count_matches(lines), is_broken_off=True)
    except TimeoutError:
        return GrepResult(lines, _count_matches(lines), is_cut_by_time=True)
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


def _count_matches(lines: Sequence[FoundLine]) -> int:
    """Return how many of these lines match. Others only stand around a match."""
    return sum(line.is_match for line in lines)


async def _send_pieces(
    process: Process, options: dict[str, object], pieces: AsyncIterable[GrepPiece]
) -> None:
    """Send the search's options and then each piece, behind a line that says whose it is and
    how long. If the worker process has ended, it has said why.
    """
    stdin = cast(asyncio.StreamWriter, process.stdin)
    try:
        stdin.write(json.dumps(options).encode() + b"\n")
        async for piece in pieces:
            header = {"name": piece.name, "size": len(piece.content), "more": piece.has_more}
            stdin.write(json.dumps(header).encode() + b"\n")
            stdin.write(piece.content)
            await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        return  # The worker process has printed the reason.


async def _receive_found_lines(
    process: Process, pattern: str, lines: list[FoundLine]
) -> int | None:
    """Add the lines that the worker process finds. Return how many match in all, or None if it
    ended before it had counted them, because the system killed it, for example.
    """
    async for row in cast(asyncio.StreamReader, process.stdout):
        message = json.loads(row)
        if "error" in message:
            raise InvalidInput(
                f"{pattern[:100]!r} is not a valid regular expression: {message['error']}."
            )
        # The worker process counts the matching lines last.
        if "hits" in message:
            return int(message["hits"])
        lines.append(
            FoundLine(
                name=message["name"],
                number=message["line"],
                text=message["text"],
                is_match=message["hit"],
            )
        )
    return None


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
    pieces = wrap_chunks_for_grep("", content)
    result = await grep_pieces(pattern, pieces, context=context)
    return format_page_of_found_lines(result)


def format_page_of_found_lines(result: GrepResult) -> str:
    """Format the first lines found in an entry, as many as fit on a page. No line is cut."""
    page = replace(result, lines=_find_lines_that_fit_on_page(result.lines))
    return format_found_lines(page, advice="; use a narrower pattern, or lines")


def _find_lines_that_fit_on_page(found_lines: Sequence[FoundLine]) -> list[FoundLine]:
    """Return the first lines, without those before a match that does not fit itself.

    A line near a match comes before or after it. One that comes before waits until the match
    is reached, and is left out if the page is full by then.
    """
    page: list[FoundLine] = []
    lines_before_next_match: list[FoundLine] = []
    free_characters = _PAGE_CHARACTERS
    for line in found_lines:
        free_characters -= len(_format_found_line(line)) + len("\n")
        if free_characters < 0:
            break
        follows_last_line = bool(page) and line.number == page[-1].number + 1
        if line.is_match or follows_last_line:
            page += lines_before_next_match
            page.append(line)
            lines_before_next_match = []
        else:
            lines_before_next_match.append(line)
    if page:
        return page
    # The lines before the first match already fill a page, but the match matters more.
    return [line for line in found_lines if line.is_match][:1]


def _format_found_line(line: FoundLine) -> str:
    mark = ":" if line.is_match else "-"
    numbered_line = f"{line.number}{mark} {line.text}"
    # The lines of a single entry have no name before them.
    if not line.name:
        return numbered_line
    return f"{line.name}{mark}{numbered_line}"


def _format_lines_in_groups(lines: Sequence[FoundLine]) -> list[str]:
    """Format the lines, with a row `--` between those that do not follow each other.

    Matches alone need no such row: it is the lines near them that would run together.
    """
    has_lines_near_matches = any(not line.is_match for line in lines)
    rows: list[str] = []
    previous_line: FoundLine | None = None
    for line in lines:
        if has_lines_near_matches and previous_line is not None:
            is_same_source = line.name == previous_line.name
            is_next_line = is_same_source and line.number == previous_line.number + 1
            if not is_next_line:
                rows.append("--")
        rows.append(_format_found_line(line))
        previous_line = line
    return rows


def format_found_lines(result: GrepResult, *, advice: str = "") -> str:
    """Format matches as `name:12: the line` and lines near them as `name-11- the line`,
    in groups. `advice`: what to do about matching lines that are not shown.
    """
    rows = _format_lines_in_groups(result.lines)
    shown_match_count = _count_matches(result.lines)
    if result.match_count > shown_match_count:
        left_out = result.match_count - shown_match_count
        rows.append(f"[… {left_out:,} more matching lines{advice}]")
    if result.is_cut_by_time:
        rows.append(
            "[the search was stopped: it took too long. Use a simpler pattern or fewer files.]"
        )
    if result.is_broken_off:
        rows.append("[the search broke off, so there may be more. Search again, in fewer files.]")
    return "\n".join(rows)
