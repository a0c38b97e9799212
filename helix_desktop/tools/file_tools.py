"""The tools that read and change files: read_file, write_file, edit_file, list_files, glob_files.

A file is read unchanged, so its cache entry has the file's hash. Every change keeps the content
before and after it in the cache, and is only written if the file still is what the question showed.
"""

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

from helix_desktop.documents.document_kinds import find_kind_by_ending
from helix_desktop.engine.changes.diff_hunks import CONTEXT
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.content_recall import LINES_TOKENS
from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.text_passages import find_passages
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import (
    ActionRefused,
    CacheCorrupt,
    HelixError,
    InvalidInput,
    NotFound,
    format_things,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import autorun_files, file_text, glob_patterns, workspace_roots
from helix_desktop.tools.built_in_tool import (
    AnsweredRead,
    ToolArguments,
    ToolOutput,
    ToolResources,
    declare_tool,
)
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.workspace_roots import FolderEntry, RootPath

T = TypeVar("T")
MOST_LISTED = 2_000
LARGEST_WHOLE = 256 * 1024 * 1024
LARGEST_UNSAVED = (
    4 * 1024 * 1024
)  # Editors are asked for the unsaved text of files with up to this many bytes.
LARGEST_IMAGE = 10 * 1024 * 1024
AROUND_EDIT = (
    1_000_000,
    300,
    100,
    30,
    10,
)  # The context lines to try in the diff of a folded file.
LONGEST_TOKEN = (
    12  # No token has more characters, so a text can't fit if it has more for each token left.
)
_PIECE = 1 << 20
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)

# --- The tool read_file ---


async def read_file(args: ToolArguments, use: ToolResources) -> ToolOutput:
    place = use.roots.resolve_path(args.text_argument("path"))
    shown = use.roots.display_path(place)
    await use.permit(
        ToolAction(ToolName.READ_FILE, ActionEffect.READ, f"Read {shown}", shown, path=shown)
    )
    first, last = args.number_argument("first_line", 0), args.number_argument("last_line", 0)
    if last and last < max(first, 1):
        raise InvalidInput(f"last_line {last} is before first_line {first}.")
    found = await _read_or_suggest_path(workspace_roots.stat_path, use, place)
    if (
        found.st_size <= LARGEST_UNSAVED
        and (unsaved := await _read_unsaved_text(use, place)) is not None
    ):
        part = "".join(unsaved.splitlines(keepends=True)[max(first, 1) - 1 : last or None])
        return ToolOutput(part or "[no text]", source=f"{shown} (not saved yet in the editor)")
    asked, stamp = (
        (str(place.full_path), first, last),
        (found.st_mtime_ns, found.st_size, found.st_ino),
    )
    earlier = use.files_seen.answered_reads.get(asked)
    if (
        earlier is not None
        and earlier.stamp == stamp
        and await _is_result_in_cache(use, earlier.result)
    ):
        return replace(earlier.result, repeat_of=earlier.call)
    result = await _read_any_file(use, place, first, last)
    if result.stored is not None:
        use.files_seen.outputs_with_text.setdefault(asked[0], set()).add(result.stored.digest)
    use.files_seen.answered_reads[asked] = AnsweredRead(stamp, result, use.call.id)
    return result


async def _read_unsaved_text(use: ToolResources, place: RootPath) -> str | None:
    """Return a file's text if the user's editor has unsaved changes to it, or None."""
    read_editor_file = use.workspace_resources.editor_files.get(use.context.conversation)
    text = await read_editor_file(place.full_path) if read_editor_file is not None else None
    if text is None:
        return None
    saved = await asyncio.to_thread(workspace_roots.read_whole_file, use.roots, place)
    same = (
        file_text.decode_file_text(saved).removeprefix("\ufeff").splitlines() == text.splitlines()
    )
    return None if same else text


async def _refuse_unsaved_file(use: ToolResources, place: RootPath) -> None:
    """Refuse to overwrite a file that has unsaved changes in the user's editor."""
    with suppress(NotFound):
        if await _read_unsaved_text(use, place) is not None:
            raise ActionRefused(
                f"{use.roots.display_path(place)} has changes in the user's editor that are not saved; nothing was written.",
                remedy="Ask the user to save the file or to discard the changes, then read it again.",
            )


async def _is_result_in_cache(use: ToolResources, result: ToolOutput) -> bool:
    """Whether the cache still has what was read. It may have been forgotten or damaged."""
    entries = list(result.images)
    if result.stored:
        entries.append(result.stored)
    try:
        for entry in entries:
            await use.cache.read_range(entry.digest, 0, 1)
    except (NotFound, CacheCorrupt):
        return False
    return True


async def _read_any_file(use: ToolResources, place: RootPath, first: int, last: int) -> ToolOutput:
    shown = use.roots.display_path(place)
    head = await asyncio.to_thread(workspace_roots.read_file_piece, use.roots, place, 0, 8192)
    kind = _kind_of_image(head)
    if kind:
        return await _read_image(use, place, kind)
    if b"\0" in head and file_text.encoding_by_mark(head) == "utf-8":
        return await _describe_binary_file(use, place)
    size = (await asyncio.to_thread(workspace_roots.stat_path, use.roots, place)).st_size
    if size > LARGEST_WHOLE and not last:
        raise _too_large_error(shown, size)
    if file_text.encoding_by_mark(head) != "utf-8":
        return await _read_utf16_lines(use, place, first or 1, last)
    if first or last:
        return await _read_lines_between(use, place, first or 1, last)
    stored = await use.store_result(_iterate_file_pieces(use, place), shown)
    use.files_seen.set_content_seen(place.full_path, stored.digest)
    if not stored.size:
        return ToolOutput("[the file is empty]", source=shown)
    return ToolOutput(stored=stored, source=shown)


def _kind_of_image(head: bytes) -> str:
    """The media type that the first bytes of a file tell, or an empty string."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    for beginning, kind in _IMAGES:
        if head.startswith(beginning):
            return kind
    return ""


def _too_large_error(shown: str, size: int) -> InvalidInput:
    return InvalidInput(
        f"{shown} is too large: it has {size:,} bytes. Only files up to {LARGEST_WHOLE:,} bytes are read in full.",
        remedy="Read some lines with first_line and last_line, or use search_files.",
    )


async def _read_utf16_lines(
    use: ToolResources, place: RootPath, first: int, last: int
) -> ToolOutput:
    """Read a UTF-16 file as text. Writing it keeps UTF-16."""
    shown = use.roots.display_path(place)
    content = await asyncio.to_thread(workspace_roots.read_whole_file, use.roots, place)
    if file_text.detect_encoding(content) == "utf-8":
        return await _describe_binary_file(use, place)
    stored = await use.store_result(content, shown)
    use.files_seen.set_content_seen(place.full_path, stored.digest)
    text = file_text.decode_file_text(content).removeprefix("\ufeff")
    lines = text.encode("utf-8", "replace").split(b"\n")
    total = len(lines) - (not lines[-1])
    if first > max(total, 1):
        raise InvalidInput(f"There is no line {first:,} in {shown}; the last one is {total:,}.")
    if 0 < last < len(lines):
        wanted = lines[first - 1 : last]
        wanted.append(b"")  # The last line ends with a line end, too.
    else:
        wanted = lines[first - 1 :]
    return ToolOutput(b"\n".join(wanted), source=shown)


async def _iterate_file_pieces(use: ToolResources, place: RootPath) -> AsyncIterator[bytes]:
    with workspace_roots.open_for_reading(use.roots, place) as handle:
        while piece := await asyncio.to_thread(os.read, handle, _PIECE):
            yield piece


async def _read_lines_between(
    use: ToolResources, place: RootPath, first: int, last: int
) -> ToolOutput:
    """Read lines `first` to `last` (0: the last one) in pieces, and no more of a large file."""
    size = (await asyncio.to_thread(workspace_roots.stat_path, use.roots, place)).st_size
    large = size > LARGEST_WHOLE
    kept: list[bytes] = []
    at, end, digest, room = 1, b"\n", hashlib.sha256(), LARGEST_WHOLE
    async for piece in _iterate_file_pieces(use, place):
        for line in piece.splitlines(keepends=True) if b"\n" in piece else [piece]:
            if first <= at and (not last or at <= last):
                kept.append(line)
                room -= len(line)
            at += line.endswith(b"\n")
        if room < 0:  # The file may consist of a single very long line.
            raise _too_large_error(use.roots.display_path(place), size)
        digest.update(piece)
        end = piece[-1:]
        if large and last and at > last:
            break
    else:
        use.files_seen.digests_seen_by_agent[str(place.full_path)] = Digest(digest.digest())
    shown = use.roots.display_path(place)
    total = at - (end == b"\n")
    if not kept:
        raise InvalidInput(f"There is no line {first:,} in {shown}; the last one is {total:,}.")
    span = f"{first}-{min(last, total) if last else total}"
    stored = await use.store_result(b"".join(kept), f"{shown}:{span}")
    return ToolOutput(stored=stored, source=f"{shown}:{span}")


async def _read_image(use: ToolResources, place: RootPath, kind: str) -> ToolOutput:
    shown = use.roots.display_path(place)
    content = await asyncio.to_thread(
        workspace_roots.read_whole_file, use.roots, place, LARGEST_IMAGE
    )
    image = await use.store_result(content, shown, kind)
    return ToolOutput(
        f"[image {shown}, {kind}, {len(content):,} bytes]", source=shown, images=(image,)
    )


async def _describe_binary_file(use: ToolResources, place: RootPath) -> ToolOutput:
    shown = use.roots.display_path(place)
    size = (await asyncio.to_thread(workspace_roots.stat_path, use.roots, place)).st_size
    said = f"{shown} is no text: {size:,} bytes of binary data, not shown."
    if find_kind_by_ending(place.full_path.name) is not None:
        said += " To read it as text, call read_document (with call_tool)."
    return ToolOutput(said, source=shown)


async def _read_or_suggest_path(
    read: Callable[[workspace_roots.WorkspaceRoots, RootPath], T],
    use: ToolResources,
    place: RootPath,
) -> T:
    """Return what `read` finds. If the file is missing, raise NotFound with a suggestion."""
    try:
        return await asyncio.to_thread(read, use.roots, place)
    except NotFound as error:
        raise NotFound(
            error.what,
            remedy=await asyncio.to_thread(_suggest_path, use.roots, place) or error.remedy,
        ) from None


def _suggest_path(roots: workspace_roots.WorkspaceRoots, place: RootPath) -> str:
    """Suggest an existing path: without a line number or the workspace's name, or with
    a similar name.
    """
    without_line = re.sub(r":\d+(?:[:-]\d+)?$", "", place.inside)
    for inside in dict.fromkeys((without_line, place.inside.removeprefix(f"{place.root.name}/"))):
        with suppress(HelixError):
            if inside != place.inside:
                workspace_roots.stat_path(roots, RootPath(place.root, inside))
                return f"There is {roots.display_path(RootPath(place.root, inside))}."
    above = RootPath(place.root, place.inside.rpartition("/")[0])
    try:
        names = [item.name for item in workspace_roots.list_folder(roots, above)]
    except HelixError:
        return ""
    alike = [
        name for name in names if _comparable_name(name) == _comparable_name(place.full_path.name)
    ]
    near = alike or difflib.get_close_matches(place.full_path.name, names[:MOST_LISTED], 3, 0.75)
    shown = [
        printable_name(
            roots.display_path(RootPath(place.root, f"{above.inside}/{name}".lstrip("/")))
        )
        for name in near
    ]
    return f"There is {', '.join(shown)}." if shown else ""


def _comparable_name(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


# --- The tools write_file and edit_file ---


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file before and after a change. None: it does not exist."""

    root_path: RootPath
    before: bytes | None
    after: bytes | None

    def format_as_diff(self, name: str, context: int = CONTEXT) -> str:
        before, after = (
            file_text.decode_file_text(content or b"") for content in (self.before, self.after)
        )
        return format_unified_diff(before, after, name, context)


async def write_file(args: ToolArguments, use: ToolResources) -> ToolOutput:
    place = use.roots.resolve_path(args.text_argument("path"))
    before = await asyncio.to_thread(workspace_roots.read_file_or_none, use.roots, place)
    _check_unchanged_if_read(use, place, before)
    shown, content = use.roots.display_path(place), args.text_argument("content")
    after = file_text.encode_like_before(before or b"", content, shown)
    verb = "Overwrite" if before is not None else "Create"
    done = await ask_and_write(use, FileEdit(place, before, after), f"{verb} {shown}")
    if (
        isinstance(done.output, str)
        and "\r" not in content
        and "\r\n" in file_text.decode_file_text(after)
    ):
        done = replace(
            done,
            output=f"{done.output}\n[It keeps its Windows line ends; a command can change them.]\n",
        )
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    if before is None:
        return replace(done, output=f"Created {shown} ({format_things(lines, 'line', 'lines')}).")
    return done


async def edit_file(args: ToolArguments, use: ToolResources) -> ToolOutput:
    place = use.roots.resolve_path(args.text_argument("path"))
    before = await _read_or_suggest_path(workspace_roots.read_whole_file, use, place)
    _check_unchanged_if_read(use, place, before)
    shown = use.roots.display_path(place)
    old, new = args.text_argument("old_text"), args.text_argument("new_text")
    room = _tokens_to_show_of_file(use, place)
    try:
        every = args.flag_argument("replace_all")
        after = await asyncio.to_thread(
            file_text.replace_text_in_file, before, old, new, shown, every=every
        )
    except InvalidInput as error:
        lines = file_text.decode_file_text(before[:LARGEST_UNSAVED]).split("\n")
        found = await asyncio.to_thread(find_passages, use.tokens, lines, old, room) if room else ""
        if not found:
            raise
        said = f"{error}\nWhat you have read of it is no longer shown. It says:\n{found}"
        return replace(await _store_output_with_file_text(use, place, said), ok=False)
    change = FileEdit(place, before, after)
    done = await ask_and_write(use, change, f"Edit {shown}")
    for context in AROUND_EDIT if room and before != after else ():
        fuller = await asyncio.to_thread(change.format_as_diff, printable_name(shown), context)
        if len(fuller) <= LONGEST_TOKEN * room and use.tokens.count_tokens(fuller) <= room:
            return replace(
                await _store_output_with_file_text(use, place, fuller), changes=done.changes
            )
    return done


def _tokens_to_show_of_file(use: ToolResources, place: RootPath) -> int:
    """Return how many tokens of the file to show after its edit: none if the agent
    still sees what it read.
    """
    read = use.files_seen.outputs_with_text.get(str(place.full_path), ())
    folded = bool(read) and not any(map(use.context.is_shown, read))
    return min(use.context.whole_tokens, LINES_TOKENS) if folded else 0


async def _store_output_with_file_text(
    use: ToolResources, place: RootPath, text: str
) -> ToolOutput:
    shown = use.roots.display_path(place)
    stored = await use.store_result(text.encode("utf-8", "replace"), shown)
    use.files_seen.outputs_with_text.setdefault(str(place.full_path), set()).add(stored.digest)
    return ToolOutput(stored=stored, source=shown)


async def ask_and_write(use: ToolResources, change: FileEdit, title: str) -> ToolOutput:
    """Ask with the diff, keep both contents, write the file, and report it."""
    if change.before is not None:
        await _refuse_unsaved_file(use, change.root_path)
    shown = use.roots.display_path(change.root_path)
    if change.before == change.after:
        return ToolOutput(f"{shown} already is exactly so; nothing was written.", source=shown)
    diff = await asyncio.to_thread(change.format_as_diff, printable_name(shown))
    later = autorun_files.changes_what_runs(
        change.root_path.inside, change.before or b"", change.after or b""
    )
    danger, apart = (
        ("other programs run the contents of this file", "runs_later") if later else ("", "")
    )
    await use.permit(
        ToolAction(
            use.call.name,
            ActionEffect.EDIT,
            title,
            diff,
            path=shown,
            reason_to_ask=danger,
            separate_permission=apart,
        )
    )
    fact = FileChanged(
        str(change.root_path.full_path),
        await _store_version(use, change.before, shown),
        await _store_version(use, change.after, shown),
    )
    await _finish_write_ignoring_cancel(use, change)
    after = None if change.after is None else Digest.of_content(change.after)
    use.files_seen.set_content_seen(change.root_path.full_path, after)
    return ToolOutput(diff or f"Wrote {shown}.", source=shown, changes=(fact,))


async def _finish_write_ignoring_cancel(use: ToolResources, change: FileEdit) -> None:
    """Finish and record a write even if the turn is stopped, so that no file changes
    without a fact.
    """
    writing = asyncio.get_running_loop().run_in_executor(None, write_edit, use.roots, change)
    while not writing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(writing)
    writing.result()


def write_edit(roots: workspace_roots.WorkspaceRoots, change: FileEdit) -> None:
    """Write the change to disk if the file is still what was shown."""
    expected = None if change.before is None else Digest.of_content(change.before)
    if change.after is not None:
        workspace_roots.replace_file(roots, change.root_path, change.after, expected=expected)
    elif expected is not None:
        workspace_roots.delete_file(roots, change.root_path, expected=expected)


async def _store_version(
    use: ToolResources, content: bytes | None, shown_path: str
) -> Digest | None:
    return None if content is None else (await use.store_result(content, shown_path)).digest


def _check_unchanged_if_read(use: ToolResources, place: RootPath, now: bytes | None) -> None:
    """Raise ActionRefused if the file differs from what this conversation last saw."""
    known = use.files_seen.digests_seen_by_agent.get(str(place.full_path))
    if known is None or (now is not None and Digest.of_content(now) == known):
        return
    what = "was deleted" if now is None else "was changed"  # By whom isn't known: perhaps the user.
    if now is None:
        use.files_seen.digests_seen_by_agent.pop(str(place.full_path))
    raise ActionRefused(
        f"{use.roots.display_path(place)} {what} since you read it; nothing was written.",
        remedy="Read the file again, then change the current version.",
    )


async def find_changes_by_command(use: ToolResources) -> tuple[FileChanged, ...]:
    """Find files, read whole or written here, that a command changed, so that this can
    be undone, too.
    """
    found = []
    for path, before in list(use.files_seen.digests_known_on_disk.items()):
        place = use.roots.with_nothing_hidden.resolve_path(path)
        now = await asyncio.to_thread(_read_if_small, use, place)
        after = None if now is None else Digest.of_content(now)
        if after == before or (now is None and await asyncio.to_thread(place.full_path.exists)):
            continue
        await _store_version(use, now, use.roots.display_path(place))
        found.append(FileChanged(path, before, after))
        if after is None:
            del use.files_seen.digests_known_on_disk[path]
        else:
            use.files_seen.digests_known_on_disk[path] = after
    return tuple(found)


def _read_if_small(use: ToolResources, place: RootPath) -> bytes | None:
    with suppress(HelixError):
        return workspace_roots.read_whole_file(use.roots, place)
    return None


# --- The tools list_files and glob_files ---


async def list_files(args: ToolArguments, use: ToolResources) -> ToolOutput:
    place = use.roots.resolve_path(args.text_argument("path", "."))
    shown = use.roots.display_path(place)
    await use.permit(
        ToolAction(ToolName.LIST_FILES, ActionEffect.READ, f"List {shown}", shown, path=shown)
    )
    items = await asyncio.to_thread(workspace_roots.list_folder, use.roots, place)
    lines = [
        _format_folder_entry(item)
        for item in sorted(items, key=lambda item: (item.kind != "folder", item.name))[:MOST_LISTED]
    ]
    if len(items) > MOST_LISTED:
        lines.append(f"[… {len(items) - MOST_LISTED:,} more, not listed]")
    return ToolOutput("\n".join(lines) or "[an empty folder]", source=shown)


def _format_folder_entry(item: FolderEntry) -> str:
    name = printable_name(item.name)
    match item.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name}  {item.size:,}"
    return f"{name}  ({item.kind})"


async def glob_files(args: ToolArguments, use: ToolResources) -> ToolOutput:
    pattern, place = (
        args.text_argument("pattern"),
        use.roots.resolve_path(args.text_argument("path", ".")),
    )
    if full := use.roots.split_full_pattern(pattern):
        place, pattern = use.roots.resolve_path(str(full[0])), full[1]
    shown = use.roots.display_path(place)
    await use.permit(
        ToolAction(ToolName.GLOB_FILES, ActionEffect.READ, f"Find {pattern}", pattern, path=shown)
    )
    found = await asyncio.to_thread(
        glob_patterns.find_paths_by_glob, use.roots, place, pattern, MOST_LISTED + 1
    )
    lines = [printable_name(name) for name in found[:MOST_LISTED]]
    if len(found) > MOST_LISTED:
        lines.append(
            f"[… more than {MOST_LISTED:,} files fit; the rest is not listed. Use a narrower pattern.]"
        )
    deeper = (
        ""
        if "/" in pattern or "**" in pattern
        else f" in {shown} itself; **/{pattern} looks in the folders below, too"
    )
    return ToolOutput("\n".join(lines) or f"[no file fits {pattern}{deeper}]", source=pattern)


def printable_name(name: str) -> str:
    """Return a file name on one line, with control characters and undecodable bytes escaped."""
    return (
        name
        if name.isprintable()
        else name.encode("unicode_escape", "backslashreplace").decode("ascii")
    )


TOOLS = (
    declare_tool(ToolName.READ_FILE, read_file),
    declare_tool(ToolName.WRITE_FILE, write_file),
    declare_tool(ToolName.EDIT_FILE, edit_file),
    declare_tool(ToolName.LIST_FILES, list_files),
    declare_tool(ToolName.GLOB_FILES, glob_files),
)
