"""The tool search_files: uses ripgrep if it can be kept inside the roots, or else our
own search.
"""

import asyncio
import base64
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.processes.starter import (
    CommandAuthor,
    ProcessLaunch,
    ProcessPlace,
    find_own_program,
)
from helix_desktop.tools import glob_patterns
from helix_desktop.tools.built_in_tool import (
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.file_tools import printable_name
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
_MOST_LINE_CHARACTERS = 400
_MOST_ROW_BYTES = 1 << 20  # Parsing a row with more bytes would block the event loop for too long.
_MOST_PATH_BYTES = 32 * 1024
_BEGINNING_OF_ROW = re.compile(
    rb'\{"type":"(match|context)","data":\{"path":(\{"\w+":"(?:[^"\\]|\\.)*"\})'
)
_PATTERN_IN_LIST = re.compile(r"(?:\{[^{}]*\}|[^,])+")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def search_files(
    sandbox: Sandbox, args: ToolArguments, resources: ToolResources
) -> ToolOutput:
    """Search files by a regular expression. The tool `search_files`. Ripgrep is faster; where it
    is missing or does not know the pattern, the program itself searches.
    """
    pattern = args.text_argument("pattern")
    path_text = args.text_argument("path", ".")
    root_path = await resources.permit_reading(
        path_text, ToolName.SEARCH_FILES, "Search {}", searched_for=pattern
    )
    await asyncio.to_thread(stat_path, resources.roots, root_path)
    limit = min(args.number_argument("limit", 200) or 200, MOST_HITS)
    result = await _search_with_ripgrep(sandbox, resources, root_path, args, limit)
    if result is None:
        result = await _search_without_ripgrep(resources, root_path, args, limit)
    found_text = format_found_lines(result)
    if not found_text:
        found_text = _describe_no_matching_line(pattern, args.text_argument("files"))
    return ToolOutput(found_text, source=pattern)


def _describe_no_matching_line(pattern: str, files: str) -> str:
    sentence = f"no line matches {pattern}"
    if files:
        sentence += f" in files that fit {files}"
    # A model that looks for a text of several lines would try it again and again.
    if "\n" in pattern or "\\n" in pattern:
        sentence += "; lines are matched one by one"
    return f"[{sentence}]"


# --- Searching with ripgrep


async def _search_with_ripgrep(
    sandbox: Sandbox, resources: ToolResources, root_path: RootPath, args: ToolArguments, limit: int
) -> GrepResult | None:
    """Search by ripgrep, for at most `SECONDS`; what it found until then is returned.
    Returns None if it is missing, can't be sandboxed or doesn't know such a pattern.
    """
    program = find_own_program("rg")
    if not program or sandbox.wrap_trusted_reader([program], 0) is None:
        return None
    # No argument of a program can contain this character.
    if "\0" in args.text_argument("pattern"):
        return None
    words = _ripgrep_command_line(program, resources, root_path, args)
    launch = ProcessLaunch(
        CommandAuthor.PROGRAM, words, root_path.root, _ENVIRONMENT, place=ProcessPlace.SANDBOX
    )

    def wrap(lifeline: int) -> list[str]:
        return sandbox.wrap_trusted_reader(words, lifeline) or []

    command = await RunningCommand.start_in_jail(launch, wrap)
    result = GrepResult()
    is_unreadable = False
    try:
        async with asyncio.timeout(SECONDS):
            is_unreadable = await _collect_ripgrep_rows(command, resources, result, limit)
    except TimeoutError:
        result.is_cut_by_time = True
    finally:
        exit_code = await asyncio.shield(command.kill_and_wait())
    # Ripgrep ends with 0 if a line matches, and with 1 if none does. We have killed it after a timeout.
    has_failed = exit_code not in {0, 1} and not result.is_cut_by_time
    if not result.match_count and (is_unreadable or has_failed):
        return None
    return result


def _ripgrep_command_line(
    program: str, resources: ToolResources, root_path: RootPath, args: ToolArguments
) -> list[str]:
    """Return the command to run: all files but git's own, in the order of their paths, with a
    JSON object a line. The user's settings for ripgrep are not read.
    """
    words = [
        program,
        "--json",
        "--no-config",
        "--hidden",
        "--glob=!.git",
        "--max-columns=0",
        "--sort=path",
    ]
    context = min(args.number_argument("context", 0), 50)
    words.append(f"--context={context}")
    if args.flag_argument("ignore_case"):
        words.append("--ignore-case")
    for file_name_pattern in _file_name_patterns(resources, args):
        words.append(f"--glob={file_name_pattern}")
    words += ["--regexp", args.text_argument("pattern"), "--", str(root_path.full_path)]
    return words


async def _collect_ripgrep_rows(
    command: RunningCommand, resources: ToolResources, result: GrepResult, limit: int
) -> bool:
    """Add the lines that ripgrep prints to `result`, without those of files that are hidden or
    may not be read. Matches beyond the limit are only counted.

    Returns whether something was not JSON, so that ripgrep can't handle such a pattern.
    """
    is_unreadable = False
    async for rows in _iterate_whole_rows(command.iterate_output()):
        for row in rows:
            message = _parse_message(row)
            if message is None:
                is_unreadable = True
                continue
            # The others say where a file begins and ends.
            if message["type"] not in ("match", "context"):
                continue
            if resources.roots.is_hidden_path(_path_of_row(message["data"])):
                continue
            is_match = message["type"] == "match"
            line = _build_found_line(resources, message["data"], hit=is_match)
            if not resources.is_readable(line.name):
                continue
            if is_match:
                result.match_count += 1
            if result.match_count <= limit:
                result.lines.append(line)
    return is_unreadable


def _parse_message(row: bytes) -> dict[str, Any] | None:
    """Parse a row of ripgrep's output. None for a line of its own error message, which quotes
    the pattern, so that it may look like JSON.
    """
    try:
        message = json.loads(row)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "type" not in message:
        return None
    return message


async def _iterate_whole_rows(output: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield complete rows. A row that is too long (a match in a file of one line)
    becomes a short note.

    Output arrives in pieces that end anywhere. The end of a piece is kept until the rest of its row
    arrives; of a row that is too long, only the beginning is kept.
    """
    unfinished_row = b""
    # The beginning of a row that is too long, while the rest of it arrives.
    beginning_of_long_row = b""
    async for piece in output:
        rows = (unfinished_row + piece).split(b"\n")
        unfinished_row = rows.pop()
        if beginning_of_long_row and rows:
            rows[0] = _note_for_long_row(beginning_of_long_row)
            beginning_of_long_row = b""
        if not beginning_of_long_row and len(unfinished_row) > _MOST_ROW_BYTES:
            beginning_of_long_row = unfinished_row[:_MOST_PATH_BYTES]
        if beginning_of_long_row:
            unfinished_row = b""
        yield rows


def _note_for_long_row(beginning_of_row: bytes) -> bytes:
    """Return a row that replaces one that was too long, built from its beginning `beginning_of_row`."""
    row_match = _BEGINNING_OF_ROW.match(beginning_of_row)
    if row_match is None:
        return b""
    note = f"[a line of over {_MOST_LINE_CHARACTERS:,} characters that is too long to be shown]"
    data = {
        "path": json.loads(row_match[2]),
        "lines": {"text": note},
        "line_number": None,
        "submatches": [],
    }
    return json.dumps({"type": row_match[1].decode(), "data": data}).encode()


def _path_of_row(data: dict[str, Any]) -> Path:
    """Return the path of a row. Ripgrep gives names that are no UTF-8 as bytes."""
    text = data["path"].get("text")
    if text:
        return Path(text)
    return Path(os.fsdecode(base64.b64decode(data["path"]["bytes"])))


def _build_found_line(resources: ToolResources, data: dict[str, Any], *, hit: bool) -> FoundLine:
    """Return a line as it is shown: with its file's path within the folders, and without the
    ends of a very long line. `hit`: it matches, or else it is near a line that does.
    """
    content_bytes = _bytes_of_line(data["lines"])
    first_match_start = 0
    if data["submatches"]:
        # Ripgrep counts bytes, of which a letter may have several.
        first_match = data["submatches"][0]
        bytes_before_match = content_bytes[: first_match["start"]]
        text_before_match = bytes_before_match.decode("utf-8", "replace")
        first_match_start = len(text_before_match)
    content = content_bytes.decode("utf-8", "replace").rstrip("\r\n")
    shown_text = _cut_long_line(content, first_match_start)
    path = str(_path_of_row(data))
    shown_path = _display_path_or_full(resources, path)
    line_number = data["line_number"] or 0
    return FoundLine(printable_name(shown_path), line_number, shown_text, hit)


def _bytes_of_line(lines: dict[str, str]) -> bytes:
    """Return a line as it is in the file. Ripgrep gives lines that are no UTF-8 as bytes."""
    if "text" in lines:
        return lines["text"].encode("utf-8", "surrogatepass")
    return base64.b64decode(lines["bytes"])


def _cut_long_line(content: str, match_start: int) -> str:
    """Of a long line, return a piece that contains the first match, with `…` where it is cut."""
    if len(content) <= _MOST_LINE_CHARACTERS:
        return content
    piece_start = max(0, match_start - _MOST_LINE_CHARACTERS // 3)
    piece_end = piece_start + _MOST_LINE_CHARACTERS
    shown_piece = content[piece_start:piece_end]
    if piece_start > 0:
        shown_piece = f"…{shown_piece}"
    if piece_end < len(content):
        shown_piece = f"{shown_piece}…"
    return shown_piece


def _display_path_or_full(resources: ToolResources, path: str) -> str:
    try:
        return resources.roots.display_path(resources.roots.resolve_path(path))
    except HelixError:
        return path


async def _search_without_ripgrep(
    resources: ToolResources, root_path: RootPath, args: ToolArguments, limit: int
) -> GrepResult:
    pieces = _read_text_files(resources, root_path, _file_name_patterns(resources, args))
    context = args.number_argument("context", 0)
    ignore_case = args.flag_argument("ignore_case")
    pattern = args.text_argument("pattern")
    return await grep_pieces(pattern, pieces, context=context, limit=limit, ignore_case=ignore_case)


def _file_name_patterns(resources: ToolResources, args: ToolArguments) -> list[str]:
    """Return patterns for the files to search, or none for all. Commas separate several
    patterns.
    """
    files = args.text_argument("files").strip()
    if not files:
        return []
    patterns = []
    for expanded in _split_and_expand_patterns(files):
        pattern = expanded.strip()
        full_pattern = resources.roots.split_full_pattern(pattern)
        if full_pattern is None:
            patterns.append(pattern)
        else:
            # A model may give a full path. Only the part within the root is compared.
            _, pattern_in_root = full_pattern
            patterns.append(pattern_in_root)
    return patterns


def _split_and_expand_patterns(files: str) -> list[str]:
    """Return the patterns between the commas, of which those within braces separate none."""
    patterns: list[str] = []
    for pattern in _PATTERN_IN_LIST.findall(files):
        if pattern.strip():
            patterns += glob_patterns.expand_braces(pattern)
    return patterns


async def _read_text_files(
    resources: ToolResources, root_path: RootPath, files: list[str]
) -> AsyncIterator[GrepPiece]:
    """Yield the text files within a folder, or the single file, each as one piece."""
    for name in await asyncio.to_thread(_list_matching_file_names, resources, root_path, files):
        path = RootPath(root_path.root, name)
        shown_path = resources.roots.display_path(path)
        if not resources.is_readable(shown_path):
            continue
        with suppress(HelixError):
            content = await asyncio.to_thread(read_whole_file, resources.roots, path, _LARGEST_FILE)
            if b"\0" not in content[:8192]:
                yield GrepPiece(printable_name(shown_path), content)


def _list_matching_file_names(
    resources: ToolResources, root_path: RootPath, files: list[str]
) -> list[str]:
    """Return the names, within the root, of the files to search: those in the folder
    that fit one of the patterns, or the single file that the path names.

    Patterns are compared with names within the searched folder, as ripgrep does.
    """
    names: list[str] = []
    try:
        for name, _ in walk_files(resources.roots, root_path, glob_patterns.SKIPPED_FOLDERS):
            names.append(name)
    except (InvalidInput, HelixError):
        # It is a single file.
        return [root_path.inside]
    if not files:
        return names

    split_patterns: list[tuple[str, ...]] = []
    for pattern in files:
        if "/" in pattern:
            split_patterns.append(tuple(pattern.split("/")))
        else:
            split_patterns.append(("**", pattern))  # A name without a folder fits in any folder.
    folder_prefix = ""
    if root_path.inside:
        folder_prefix = f"{root_path.inside}/"
    matching_names: list[str] = []
    for name in names:
        name_in_folder = name.removeprefix(folder_prefix)
        if glob_patterns.fits_any_pattern(name_in_folder, split_patterns):
            matching_names.append(name)
    return matching_names


SEARCH_FILES = ToolDeclaration(
    ToolName.SEARCH_FILES,
    "Search the text of files with a regular expression.",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "Folder or file"},
            "files": {
                "type": "string",
                "description": "Only names that fit, such as *.py or src/**/*.{ts,tsx}",
            },
            "context": {"type": "integer", "description": "Lines around each match"},
            "ignore_case": {"type": "boolean"},
            "limit": {"type": "integer", "description": f"Up to {MOST_HITS}", "minimum": 1},
        },
        "required": ["pattern"],
    },
)
