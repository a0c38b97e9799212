"""The tool search_files: uses ripgrep if it can be kept inside the roots, or else our
own search.
"""

import asyncio
import base64
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.tools import glob_patterns
from helix_desktop.tools.built_in_tool import ToolArguments, ToolOutput, ToolResources
from helix_desktop.tools.file_tools import printable_name
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.regex_search import (
    SECONDS,
    FoundLine,
    GrepPiece,
    GrepResult,
    format_found_lines,
    grep_pieces,
)
from helix_desktop.tools.sandbox import Sandbox
from helix_desktop.tools.workspace_roots import RootPath, read_whole_file, stat_path, walk_files

MOST_HITS = 500
_LARGEST_FILE = 4 * 1024 * 1024
_LONGEST_LINE = 400
_LONGEST_ROW = 1 << 20  # Parsing a row with more bytes would block the event loop for too long.
_LONGEST_PATH = 32 * 1024
_BEGINS = re.compile(rb'\{"type":"(match|context)","data":\{"path":(\{"\w+":"(?:[^"\\]|\\.)*"\})')
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def search_files(sandbox: Sandbox, args: ToolArguments, use: ToolResources) -> ToolOutput:
    pattern, place = (
        args.text_argument("pattern"),
        use.roots.resolve_path(args.text_argument("path", ".")),
    )
    where = use.roots.display_path(place)
    await use.permit(
        ToolAction(ToolName.SEARCH_FILES, ActionEffect.READ, f"Search {where}", pattern, path=where)
    )
    await asyncio.to_thread(stat_path, use.roots, place)
    most = min(args.number_argument("limit", 200) or 200, MOST_HITS)
    found = await _search_with_ripgrep(sandbox, use, place, args, most)
    if found is None:
        found = await _search_without_ripgrep(use, place, args, most)
    files = args.text_argument("files")
    lines = "; lines are matched one by one" if "\n" in pattern or "\\n" in pattern else ""
    nothing = f"[no line matches {pattern}{f' in files that fit {files}' if files else ''}{lines}]"
    return ToolOutput(format_found_lines(found) or nothing, source=pattern)


# --- Searching with ripgrep


async def _search_with_ripgrep(
    sandbox: Sandbox, use: ToolResources, place: RootPath, args: ToolArguments, limit: int
) -> GrepResult | None:
    """Search by ripgrep. Returns None if it is missing, can't be sandboxed or doesn't
    know such a pattern.
    """
    program = shutil.which("rg")
    if (
        program is None
        or sandbox.wrap_trusted_reader([program], 0) is None
        or "\0" in args.text_argument("pattern")
    ):
        return None
    words = [
        program,
        "--json",
        "--no-config",
        "--hidden",
        "--glob=!.git",
        "--max-columns=0",
        "--sort=path",
    ]
    words += [
        f"--context={min(args.number_argument('context', 0), 50)}",
        *(["--ignore-case"] if args.flag_argument("ignore_case") else []),
    ]
    words += [f"--glob={glob}" for glob in _file_name_patterns(use, args)]
    words += ["--regexp", args.text_argument("pattern"), "--", str(place.full_path)]
    launch = ProcessLaunch(
        CommandAuthor.PROGRAM, words, place.root, _PLAIN, place=ProcessPlace.SANDBOX
    )
    command = await RunningCommand.start_in_jail(
        launch, lambda lifeline: sandbox.wrap_trusted_reader(words, lifeline) or []
    )
    found, is_unreadable = GrepResult(), False
    try:
        async with asyncio.timeout(SECONDS):
            is_unreadable = await _collect_ripgrep_rows(command, use, found, limit)
    except TimeoutError:
        found.is_cut_by_time = True
    finally:
        code = await asyncio.shield(command.kill_and_wait())
    if not found.match_count and (
        is_unreadable or (code not in {0, 1} and not found.is_cut_by_time)
    ):
        return None
    return found


async def _collect_ripgrep_rows(
    command: RunningCommand, use: ToolResources, found: GrepResult, limit: int
) -> bool:
    """Return whether something was not JSON, so that ripgrep can't handle such a pattern."""
    is_unreadable = False
    async for rows in _iterate_whole_rows(command.iterate_output()):
        for row in rows:
            try:
                said = json.loads(row)
            except ValueError:
                said = None
            # This is a line of ripgrep's own error message, which quotes the pattern.
            if not isinstance(said, dict) or "type" not in said:
                is_unreadable = True
                continue
            hit = said["type"] == "match"
            if (not hit and said["type"] != "context") or use.roots.is_hidden_path(
                _path_of_row(said["data"])
            ):
                continue
            line = _build_found_line(use, said["data"], hit=hit)
            if use.is_readable(line.name):
                found.match_count += hit
                if found.match_count <= limit:
                    found.lines.append(line)
    return is_unreadable


async def _iterate_whole_rows(output: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield complete rows. A row that is too long (a match in a file of one line)
    becomes a short note.
    """
    rest = head = b""
    async for piece in output:
        *rows, rest = (rest + piece).split(b"\n")
        if head and rows:
            rows[0], head = _note_for_long_row(head), b""
        if head or len(rest) > _LONGEST_ROW:
            head, rest = head or rest[:_LONGEST_PATH], b""
        yield rows


def _note_for_long_row(head: bytes) -> bytes:
    """Return a row that replaces one that was too long, built from its beginning `head`."""
    if (begins := _BEGINS.match(head)) is None:
        return b""
    said = f"[a line of over {_LONGEST_LINE:,} characters that is too long to be shown]"
    data = {
        "path": json.loads(begins[2]),
        "lines": {"text": said},
        "line_number": None,
        "submatches": [],
    }
    return json.dumps({"type": begins[1].decode(), "data": data}).encode()


def _path_of_row(data: dict[str, Any]) -> Path:
    """Return the path of a row. Ripgrep gives names that are no UTF-8 as bytes."""
    return Path(data["path"].get("text") or os.fsdecode(base64.b64decode(data["path"]["bytes"])))


def _build_found_line(use: ToolResources, data: dict[str, Any], *, hit: bool) -> FoundLine:
    path = str(_path_of_row(data))
    with suppress(HelixError):
        path = use.roots.display_path(use.roots.resolve_path(path))
    content = data["lines"].get("text", "[bytes that are no text]").rstrip("\r\n")
    start = data["submatches"][0]["start"] if data["submatches"] else 0
    first = max(0, start - _LONGEST_LINE // 3) if len(content) > _LONGEST_LINE else 0
    cut = content[first : first + _LONGEST_LINE]
    text_ = ("…" if first else "") + cut + ("…" if len(content) > first + _LONGEST_LINE else "")
    return FoundLine(printable_name(path), data["line_number"] or 0, text_, hit)


async def _search_without_ripgrep(
    use: ToolResources, place: RootPath, args: ToolArguments, most: int
) -> GrepResult:
    pieces = _read_text_files(use, place, _file_name_patterns(use, args))
    context, ignore_case = args.number_argument("context", 0), args.flag_argument("ignore_case")
    pattern = args.text_argument("pattern")
    return await grep_pieces(pattern, pieces, context=context, limit=most, ignore_case=ignore_case)


def _file_name_patterns(use: ToolResources, args: ToolArguments) -> list[str]:
    """Return patterns for the files to search, or none for all. Commas separate several
    patterns.
    """
    files = args.text_argument("files").strip()
    if "," in files and "{" not in files:
        files = f"{{{files}}}"
    found = [one.strip() for one in glob_patterns.expand_braces(files)] if files else []
    return [full[1] if (full := use.roots.split_full_pattern(one)) else one for one in found]


async def _read_text_files(
    use: ToolResources, place: RootPath, files: list[str]
) -> AsyncIterator[GrepPiece]:
    """Yield the text files within a folder, or the single file, each as one piece."""
    for name in await asyncio.to_thread(_list_matching_file_names, use, place, files):
        if not use.is_readable(use.roots.display_path(RootPath(place.root, name))):
            continue
        with suppress(HelixError):
            content = await asyncio.to_thread(
                read_whole_file, use.roots, RootPath(place.root, name), _LARGEST_FILE
            )
            if b"\0" not in content[:8192]:
                yield GrepPiece(
                    printable_name(use.roots.display_path(RootPath(place.root, name))), content
                )


def _list_matching_file_names(use: ToolResources, place: RootPath, files: list[str]) -> list[str]:
    try:
        found = [
            inside for inside, _ in walk_files(use.roots, place, glob_patterns.SKIPPED_FOLDERS)
        ]
    except (InvalidInput, HelixError):
        return [place.inside]
    if not files:
        return found
    patterns = [tuple(one.split("/")) if "/" in one else ("**", one) for one in files]
    start = len(place.inside) + 1 if place.inside else 0
    return [name for name in found if glob_patterns.fits_any_pattern(name[start:], patterns)]
