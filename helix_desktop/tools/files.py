"""The tools that read and change files: read_file, write_file, edit_file, list_files, glob_files.

A file is read as it is, so that its entry in the cache has the hash of the file. Every change keeps the content
before and after in the cache, and is written only over the content that was shown in the question.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
import re
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import CacheCorrupt, HelixError, NotThere, Refused, WrongUse
from helix_desktop.tools import confine, difference, globs, runs_later, texts
from helix_desktop.tools.confine import Item, Place
from helix_desktop.tools.permission import Action, Effect
from helix_desktop.tools.tool import Arguments, Read, Result, Tool, Use, fields, flag, text, whole
from helix_desktop.values import dataclass

T = TypeVar("T")
MOST_LISTED = 2_000
LARGEST_WHOLE = 256 * 1024 * 1024
LARGEST_IMAGE = 10 * 1024 * 1024
_PIECE = 1 << 20
_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))

# --- read_file -------------------------------------------------------------------------------------------------------


async def read_file(args: Arguments, use: Use) -> Result:
    place = use.roots.place(args.text("path"))
    shown = use.roots.shown(place)
    await use.permit(Action(ToolName.READ_FILE, Effect.READ, f"Read {shown}", shown, path=shown))
    first, last = args.number("first_line", 0), args.number("last_line", 0)
    if last and last < max(first, 1):
        raise WrongUse(f"last_line {last} is before first_line {first}.")
    found = await _there(confine.look, use, place)
    asked, stamp = (str(place.path), first, last), (found.st_mtime_ns, found.st_size, found.st_ino)
    earlier = use.seen.reads.get(asked)
    if earlier is not None and earlier.stamp == stamp and await _is_kept(use, earlier.result):
        return replace(earlier.result, repeat_of=earlier.call)
    result = await _read(use, place, first, last)
    use.seen.reads[asked] = Read(stamp, result, use.call.id)
    return result


async def _is_kept(use: Use, result: Result) -> bool:
    """Whether the cache still has what was read: it may have been forgotten, or be damaged."""
    try:
        for one in (*((result.stored,) if result.stored else ()), *result.images):
            await use.cache.read(one.digest, 0, 1)
    except (NotThere, CacheCorrupt):
        return False
    return True


async def _read(use: Use, place: Place, first: int, last: int) -> Result:
    shown = use.roots.shown(place)
    head = await asyncio.to_thread(confine.piece, use.roots, place, 0, 8192)
    if kind := next((kind for start, kind in _IMAGES if head.startswith(start)), _webp(head)):
        return await _image(use, place, kind)
    if b"\0" in head and texts.mark(head) == "utf-8":
        return await _binary(use, place)
    size = (await asyncio.to_thread(confine.look, use.roots, place)).st_size
    if size > LARGEST_WHOLE and not last:
        raise WrongUse(
            f"{shown} is {size:,} bytes. Only files up to {LARGEST_WHOLE:,} bytes are read in full.",
            remedy="Read some lines with first_line and last_line, or use search_files.",
        )
    if texts.mark(head) != "utf-8":
        return await _decoded(use, place, first or 1, last)
    if first or last:
        return await _some_lines(use, place, first or 1, last)
    stored = await use.keep(_pieces(use, place), shown)
    use.seen.content[str(place.path)] = use.seen.known[str(place.path)] = stored.digest
    if not stored.size:
        return Result("[the file is empty]", source=shown)
    return Result(stored=stored, source=shown)


async def _decoded(use: Use, place: Place, first: int, last: int) -> Result:
    """A file in UTF-16 as the text it is; what is written to it stays in UTF-16."""
    shown = use.roots.shown(place)
    content = await asyncio.to_thread(confine.read, use.roots, place)
    if texts.encoding(content) == "utf-8":
        return await _binary(use, place)
    use.seen.content[str(place.path)] = use.seen.known[str(place.path)] = (await use.keep(content, shown)).digest
    lines = texts.decoded(content).removeprefix("\ufeff").encode("utf-8", "replace").split(b"\n")
    total = len(lines) - (not lines[-1])
    if first > max(total, 1):
        raise WrongUse(f"{shown} has {total:,} lines; there is no line {first:,}.")
    part = b"\n".join([*lines[first - 1 : last], b""] if 0 < last < len(lines) else lines[first - 1 :])
    return Result(part, source=shown)


async def _pieces(use: Use, place: Place) -> AsyncIterator[bytes]:
    with confine.opened(use.roots, place) as handle:
        while piece := await asyncio.to_thread(os.read, handle, _PIECE):
            yield piece


async def _some_lines(use: Use, place: Place, first: int, last: int) -> Result:
    """Lines `first` to `last` (0: to the end), read piece by piece; a large file only as far as is asked for."""
    large = (await asyncio.to_thread(confine.look, use.roots, place)).st_size > LARGEST_WHOLE
    kept: list[bytes] = []
    at, end, digest = 1, b"\n", hashlib.sha256()
    async for piece in _pieces(use, place):
        for line in piece.splitlines(keepends=True) if b"\n" in piece else [piece]:
            if first <= at and (not last or at <= last):
                kept.append(line)
            at += line.endswith(b"\n")
        digest.update(piece)
        end = piece[-1:]
        if large and last and at > last:
            break
    else:
        use.seen.content[str(place.path)] = Digest(digest.digest())
    shown = use.roots.shown(place)
    total = at - (end == b"\n")
    if not kept:
        raise WrongUse(f"{shown} has {total:,} lines; there is no line {first:,}.")
    span = f"{first}-{min(last, total) if last else total}"
    stored = await use.keep(b"".join(kept), f"{shown}:{span}")
    return Result(stored=stored, source=f"{shown}:{span}")


async def _image(use: Use, place: Place, kind: str) -> Result:
    shown = use.roots.shown(place)
    content = await asyncio.to_thread(confine.read, use.roots, place, LARGEST_IMAGE)
    image = await use.keep(content, shown, kind)
    return Result(f"[image {shown}, {kind}, {len(content):,} bytes]", source=shown, images=(image,))


async def _binary(use: Use, place: Place) -> Result:
    shown = use.roots.shown(place)
    size = (await asyncio.to_thread(confine.look, use.roots, place)).st_size
    return Result(f"{shown} is no text: {size:,} bytes of binary data, not shown.", source=shown)


async def _there(look: Callable[[confine.Roots, Place], T], use: Use, place: Place) -> T:
    """What `look` finds; of a file that is not there it is said what is."""
    try:
        return await asyncio.to_thread(look, use.roots, place)
    except NotThere as error:
        raise NotThere(error.what, remedy=await asyncio.to_thread(_instead, use.roots, place) or error.remedy) from None


def _instead(roots: confine.Roots, place: Place) -> str:
    """What the path may have meant: without a line's number or the workspace's own name, or a name like it."""
    without_line = re.sub(r":\d+(?:[:-]\d+)?$", "", place.inside)
    for inside in dict.fromkeys((without_line, place.inside.removeprefix(f"{place.root.name}/"))):
        with suppress(HelixError):
            if inside != place.inside:
                confine.look(roots, Place(place.root, inside))
                return f"There is {roots.shown(Place(place.root, inside))}."
    above = Place(place.root, place.inside.rpartition("/")[0])
    try:
        names = [item.name for item in confine.listing(roots, above)]
    except HelixError:
        return ""
    alike = [name for name in names if _spelled(name) == _spelled(place.path.name)]
    near = alike or difflib.get_close_matches(place.path.name, names[:MOST_LISTED], 3, 0.75)
    shown = [printable(roots.shown(Place(place.root, f"{above.inside}/{name}".lstrip("/")))) for name in near]
    return f"There is {', '.join(shown)}." if shown else ""


def _spelled(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


# --- write_file and edit_file ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One file as it was and as it is to be; None: not there."""

    place: Place
    before: bytes | None
    after: bytes | None

    def diff(self, name: str) -> str:
        return difference.unified(texts.decoded(self.before or b""), texts.decoded(self.after or b""), name)


async def write_file(args: Arguments, use: Use) -> Result:
    place = use.roots.place(args.text("path"))
    before = await asyncio.to_thread(confine.content_or_none, use.roots, place)
    _not_blind(use, place, before)
    shown, content = use.roots.shown(place), args.text("content")
    after = texts.in_its_place(before or b"", content, shown)
    verb = "Overwrite" if before is not None else "Create"
    done = await apply(use, Change(place, before, after), f"{verb} {shown}")
    if isinstance(done.output, str) and "\r" not in content and "\r\n" in texts.decoded(after):
        done = replace(done, output=f"{done.output}\n[It keeps its Windows line ends; a command can change them.]\n")
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    if before is None:
        return replace(done, output=f"Created {shown} ({lines:,} lines).")
    return done


async def edit_file(args: Arguments, use: Use) -> Result:
    place = use.roots.place(args.text("path"))
    before = await _there(confine.read, use, place)
    _not_blind(use, place, before)
    shown = use.roots.shown(place)
    after = texts.replaced(before, args.text("old_text"), args.text("new_text"), shown, every=args.flag("replace_all"))
    return await apply(use, Change(place, before, after), f"Edit {shown}")


async def apply(use: Use, change: Change, title: str) -> Result:
    """Ask with the diff, keep both contents, write, and say what was done."""
    shown = use.roots.shown(change.place)
    if change.before == change.after:
        return Result(f"{shown} already is exactly so; nothing was written.", source=shown)
    diff = await asyncio.to_thread(change.diff, printable(shown))
    later = runs_later.changed(change.place.inside, change.before or b"", change.after or b"")
    danger, apart = ("other programs run the contents of this file", "runs_later") if later else ("", "")
    await use.permit(Action(use.call.name, Effect.EDIT, title, diff, path=shown, danger=danger, apart=apart))
    fact = FileChanged(
        str(change.place.path), await _kept(use, change.before, shown), await _kept(use, change.after, shown)
    )
    await _finished(use, change)
    _remember(use, change)
    return Result(diff or f"Wrote {shown}.", source=shown, changes=(fact,))


async def _finished(use: Use, change: Change) -> None:
    """Once begun, a write is finished and recorded though the turn is stopped: no file changes without a fact."""
    writing = asyncio.get_running_loop().run_in_executor(None, write, use.roots, change)
    while not writing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(writing)
    writing.result()


def write(roots: confine.Roots, change: Change) -> None:
    """Put the change on the disk, if the file still is what it was when it was shown."""
    expected = None if change.before is None else Digest.of(change.before)
    if change.after is not None:
        confine.replace(roots, change.place, change.after, expected=expected)
    elif expected is not None:
        confine.remove(roots, change.place, expected=expected)


async def _kept(use: Use, content: bytes | None, shown: str) -> Digest | None:
    return None if content is None else (await use.keep(content, shown)).digest


def _remember(use: Use, change: Change) -> None:
    if change.after is None:
        use.seen.content.pop(str(change.place.path), None)
        use.seen.known.pop(str(change.place.path), None)
    else:
        use.seen.content[str(change.place.path)] = use.seen.known[str(change.place.path)] = Digest.of(change.after)


def _not_blind(use: Use, place: Place, now: bytes | None) -> None:
    """Refused where the file is no longer what this conversation last saw of it."""
    known = use.seen.content.get(str(place.path))
    if known is None or (now is not None and Digest.of(now) == known):
        return
    by = "a command" if now is not None and use.seen.known.get(str(place.path)) == Digest.of(now) else "somebody else"
    what = "was deleted" if now is None else f"was changed by {by}"
    if now is None:
        use.seen.content.pop(str(place.path))
    raise Refused(
        f"{use.roots.shown(place)} {what} since you read it; nothing was written.",
        remedy="Read the file again, then change the current version.",
    )


async def changed_by_command(use: Use) -> tuple[FileChanged, ...]:
    """What a command has done to files this conversation has read whole or written: so that can be undone as well."""
    found = []
    for path, before in list(use.seen.known.items()):
        place = use.roots.unhidden.place(path)
        now = await asyncio.to_thread(_content_if_small, use, place)
        after = None if now is None else Digest.of(now)
        if after == before or (now is None and await asyncio.to_thread(place.path.exists)):
            continue
        await _kept(use, now, use.roots.shown(place))
        found.append(FileChanged(path, before, after))
        if after is None:
            del use.seen.known[path]
        else:
            use.seen.known[path] = after
    return tuple(found)


def _content_if_small(use: Use, place: Place) -> bytes | None:
    try:
        return confine.read(use.roots, place)
    except HelixError:
        return None


# --- list_files and glob_files ---------------------------------------------------------------------------------------


async def list_files(args: Arguments, use: Use) -> Result:
    place = use.roots.place(args.text("path", "."))
    shown = use.roots.shown(place)
    await use.permit(Action(ToolName.LIST_FILES, Effect.READ, f"List {shown}", shown, path=shown))
    items = await asyncio.to_thread(confine.listing, use.roots, place)
    lines = [_line(item) for item in sorted(items, key=lambda item: (item.kind != "folder", item.name))[:MOST_LISTED]]
    if len(items) > MOST_LISTED:
        lines.append(f"[… {len(items) - MOST_LISTED:,} more, not listed]")
    return Result("\n".join(lines) or "[an empty folder]", source=shown)


def _line(item: Item) -> str:
    name = printable(item.name)
    match item.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name}  {item.size:,}"
    return f"{name}  ({item.kind})"


async def glob_files(args: Arguments, use: Use) -> Result:
    pattern, place = args.text("pattern"), use.roots.place(args.text("path", "."))
    if full := use.roots.within(pattern):
        place, pattern = use.roots.place(str(full[0])), full[1]
    shown = use.roots.shown(place)
    await use.permit(Action(ToolName.GLOB_FILES, Effect.READ, f"Find {pattern}", pattern, path=shown))
    found = await asyncio.to_thread(globs.find, use.roots, place, pattern, MOST_LISTED + 1)
    lines = [printable(name) for name in found[:MOST_LISTED]]
    if len(found) > MOST_LISTED:
        lines.append(f"[… more than {MOST_LISTED:,} files fit; the rest is not listed. Use a narrower pattern.]")
    deeper = (
        "" if "/" in pattern or "**" in pattern else f" in {shown} itself; **/{pattern} looks in the folders below, too"
    )
    return Result("\n".join(lines) or f"[no file fits {pattern}{deeper}]", source=pattern)


# --- names -----------------------------------------------------------------------------------------------------------


def printable(name: str) -> str:
    """A file name on one line: control characters and undecodable bytes cannot pass for anything else."""
    return name if name.isprintable() else name.encode("unicode_escape", "backslashreplace").decode("ascii")


def _webp(head: bytes) -> str:
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


TOOLS = (
    Tool(
        ToolName.READ_FILE,
        "Read a text file, or some of its lines. Images are shown.",
        fields(
            "path",
            path=text(),
            first_line=whole(least=1),
            last_line=whole(least=1),
        ),
        read_file,
    ),
    Tool(
        ToolName.WRITE_FILE,
        "Create a file, or replace all of its content.",
        fields("path", "content", path=text(), content=text()),
        write_file,
        alone=True,
    ),
    Tool(
        ToolName.EDIT_FILE,
        "Replace a text in a file. old_text must match exactly, and only once unless replace_all is set.",
        fields(
            "path",
            "old_text",
            "new_text",
            path=text(),
            old_text=text(),
            new_text=text(),
            replace_all=flag(),
        ),
        edit_file,
        alone=True,
    ),
    Tool(
        ToolName.LIST_FILES,
        "List a folder, with sizes in bytes.",
        fields(path=text()),
        list_files,
    ),
    Tool(
        ToolName.GLOB_FILES,
        "Find files by name, such as **/*.py or src/**/test_*.{ts,tsx}.",
        fields("pattern", pattern=text(), path=text("The folder to start in")),
        glob_files,
        rare=True,
    ),
)
