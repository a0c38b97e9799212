"""The tool search_files: ripgrep where it is and can be kept inside the roots, else our own reading and matching."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, WrongUse
from helix_desktop.processes.command import Command
from helix_desktop.processes.starter import ProcessLaunch, Where, Whose
from helix_desktop.tools import confine, globs
from helix_desktop.tools.confine import Place
from helix_desktop.tools.files import printable
from helix_desktop.tools.grep import SECONDS, Found, FoundLine, Piece, grep, shown
from helix_desktop.tools.permission import Action, Effect
from helix_desktop.tools.sandbox import Sandbox
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, flag, text, whole
from helix_desktop.values import dataclass

MOST_HITS = 500
_LARGEST_FILE = 4 * 1024 * 1024
_LONGEST_LINE = 400
_LONGEST_ROW = 1 << 20  # bytes of JSON; a longer one would hold up the event loop
_LONGEST_PATH = 32 * 1024
_BEGINS = re.compile(rb'\{"type":"(match|context)","data":\{"path":(\{"\w+":"(?:[^"\\]|\\.)*"\})')
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def tools(sandbox: Sandbox) -> tuple[Tool, ...]:
    """search_files, with what keeps ripgrep inside."""

    async def search(args: Arguments, use: Use) -> Result:
        return await search_files(sandbox, args, use)

    return (Tool(ToolName.SEARCH_FILES, _ABOUT, _SCHEMA, search),)


async def search_files(sandbox: Sandbox, args: Arguments, use: Use) -> Result:
    pattern, place = args.text("pattern"), use.roots.place(args.text("path", "."))
    where = use.roots.shown(place)
    await use.permit(Action(ToolName.SEARCH_FILES, Effect.READ, f"Search {where}", pattern, path=where))
    await asyncio.to_thread(confine.look, use.roots, place)
    most = min(args.number("limit", 200) or 200, MOST_HITS)
    found = await _by_ripgrep(sandbox, use, place, args, most)
    if found is None:
        found = await _by_ourselves(use, place, args, most)
    files = args.text("files")
    lines = "; lines are matched one by one" if "\n" in pattern or "\\n" in pattern else ""
    nothing = f"[no line matches {pattern}{f' in files that fit {files}' if files else ''}{lines}]"
    return Result(shown(found) or nothing, source=pattern)


# --- ripgrep ---------------------------------------------------------------------------------------------------------


async def _by_ripgrep(sandbox: Sandbox, use: Use, place: Place, args: Arguments, most: int) -> Found | None:
    """None where ripgrep is not there, cannot be locked in, or does not know this kind of pattern."""
    program = shutil.which("rg")
    if program is None or sandbox.reader([program], 0) is None or "\0" in args.text("pattern"):
        return None
    words = [program, "--json", "--no-config", "--hidden", "--glob=!.git", "--max-columns=0", "--sort=path"]
    words += [
        f"--context={min(args.number('context', 0), 50)}",
        *(["--ignore-case"] if args.flag("ignore_case") else []),
    ]
    words += [f"--glob={glob}" for glob in _fitting(use, args)]
    words += ["--regexp", args.text("pattern"), "--", str(place.path)]
    launch = ProcessLaunch(Whose.PROGRAM, words, place.root, _PLAIN, where=Where.SANDBOX)
    command = await Command.start(launch, lambda lifeline: sandbox.reader(words, lifeline) or [])
    got = _Gathered()
    try:
        async with asyncio.timeout(SECONDS):
            await _gather(command, use, got, most)
    except TimeoutError:
        got.late = True
    finally:
        code = await asyncio.shield(command.gone())
    if not got.hits and (got.strange or (code not in {0, 1} and not got.late)):
        return None
    return Found(tuple(got.lines), got.hits, got.late)


@dataclass(slots=True)
class _Gathered:
    """What ripgrep has said. `strange`: not the JSON it should be, so it does not know this kind of pattern."""

    lines: list[FoundLine] = field(default_factory=list)
    hits: int = 0
    late: bool = False
    strange: bool = False


async def _gather(command: Command, use: Use, got: _Gathered, most: int) -> None:
    async for rows in _rows(command.output()):
        for row in rows:
            try:
                said = json.loads(row)
            except ValueError:
                said = None
            if (
                not isinstance(said, dict) or "type" not in said
            ):  # its complaint, in which the pattern has a row of its own
                got.strange = True
                continue
            hit = said["type"] == "match"
            if (not hit and said["type"] != "context") or use.roots.is_hidden(
                Path(said["data"]["path"].get("text", ""))
            ):
                continue
            line = _line(use, said["data"], hit=hit)
            if use.readable(line.name):
                got.hits += hit
                if got.hits <= most:
                    got.lines.append(line)


async def _rows(output: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Whole rows as they come. Of one that is too long (a file that is one line, with every match in it) only a note."""
    rest = head = b""
    async for piece in output:
        *rows, rest = (rest + piece).split(b"\n")
        if head and rows:
            rows[0], head = _noted(head), b""
        if head or len(rest) > _LONGEST_ROW:
            head, rest = head or rest[:_LONGEST_PATH], b""
        yield rows


def _noted(head: bytes) -> bytes:
    """A row of which only the beginning is there, without its line."""
    begins = _BEGINS.match(head)
    if begins is None:
        return b""
    said = f"[a line of over {_LONGEST_LINE:,} characters that is too long to be shown]"
    data = {"path": json.loads(begins[2]), "lines": {"text": said}, "line_number": None, "submatches": []}
    return json.dumps({"type": begins[1].decode(), "data": data}).encode()


def _line(use: Use, data: dict[str, Any], *, hit: bool) -> FoundLine:
    path = data["path"].get("text", "?")
    with suppress(HelixError):
        path = use.roots.shown(use.roots.place(path))
    content = data["lines"].get("text", "[bytes that are no text]").rstrip("\r\n")
    start = data["submatches"][0]["start"] if data["submatches"] else 0
    first = max(0, start - _LONGEST_LINE // 3) if len(content) > _LONGEST_LINE else 0
    cut = content[first : first + _LONGEST_LINE]
    text_ = ("…" if first else "") + cut + ("…" if len(content) > first + _LONGEST_LINE else "")
    return FoundLine(printable(path), data["line_number"] or 0, text_, hit)


# --- our own ---------------------------------------------------------------------------------------------------------


async def _by_ourselves(use: Use, place: Place, args: Arguments, most: int) -> Found:
    pieces = _contents(use, place, _fitting(use, args))
    return await grep(
        args.text("pattern"), pieces, context=args.number("context", 0), most=most, ignore_case=args.flag("ignore_case")
    )


def _fitting(use: Use, args: Arguments) -> list[str]:
    """The patterns of the files to look at, none for all; several may be divided by commas, and stand in full."""
    files = args.text("files").strip()
    if "," in files and "{" not in files:
        files = f"{{{files}}}"
    found = [one.strip() for one in globs.alternatives(files)] if files else []
    return [full[1] if (full := use.roots.within(one)) else one for one in found]


async def _contents(use: Use, place: Place, files: list[str]) -> AsyncIterator[Piece]:
    """The text files beneath a place (or the one file it is), each as one piece."""
    for name in await asyncio.to_thread(_names, use, place, files):
        if not use.readable(use.roots.shown(Place(place.root, name))):
            continue
        with suppress(HelixError):
            content = await asyncio.to_thread(confine.read, use.roots, Place(place.root, name), _LARGEST_FILE)
            if b"\0" not in content[:8192]:
                yield Piece(printable(use.roots.shown(Place(place.root, name))), content)


def _names(use: Use, place: Place, files: list[str]) -> list[str]:
    try:
        found = [inside for inside, _ in confine.walk(use.roots, place, globs.UNINTERESTING)]
    except (WrongUse, HelixError):
        return [place.inside]
    if not files:
        return found
    patterns = [tuple(one.split("/")) if "/" in one else ("**", one) for one in files]
    start = len(place.inside) + 1 if place.inside else 0
    return [name for name in found if globs.fits_any(name[start:], patterns)]


_ABOUT = "Search the text of files with a regular expression."
_SCHEMA = fields(
    "pattern",
    pattern=text(),
    path=text("Folder or file"),
    files=text("Only names that fit, such as *.py or src/**/*.{ts,tsx}"),
    context=whole("Lines around each match"),
    ignore_case=flag(),
    limit=whole(f"Up to {MOST_HITS}", 1),
)
