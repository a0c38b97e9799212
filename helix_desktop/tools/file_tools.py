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
from dataclasses import field, replace
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
# Editors are asked for the unsaved text of files with up to this many bytes.
LARGEST_UNSAVED = 4 * 1024 * 1024
LARGEST_IMAGE = 10 * 1024 * 1024
# The numbers of context lines to try in the diff of a folded file.
AROUND_EDIT = (1_000_000, 300, 100, 30, 10)
# No token has more characters, so a text can't fit if it has more for each token left.
LONGEST_TOKEN = 12
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
    first = args.number_argument("first_line", 0)
    last = args.number_argument("last_line", 0)
    if last and last < max(first, 1):
        raise InvalidInput(f"last_line {last} is before first_line {first}.")
    status = await _read_or_suggest_path(workspace_roots.stat_path, use, place)
    if status.st_size <= LARGEST_UNSAVED:
        unsaved = await _read_unsaved_text(use, place)
        if unsaved is not None:
            return _output_of_unsaved_text(unsaved, first, last, shown)
    question = (str(place.full_path), first, last)
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    earlier = use.files_seen.answered_reads.get(question)
    is_answered = earlier is not None and earlier.stamp == stamp
    if earlier is not None and is_answered and await _is_result_in_cache(use, earlier.result):
        return replace(earlier.result, repeat_of=earlier.call)
    result = await _read_any_file(use, place, first, last)
    if result.stored is not None:
        _note_output_with_file_text(use, place, result.stored.digest)
    use.files_seen.answered_reads[question] = AnsweredRead(stamp, result, use.call.id)
    return result


def _output_of_unsaved_text(text: str, first: int, last: int, shown: str) -> ToolOutput:
    lines = text.splitlines(keepends=True)
    wanted = "".join(lines[max(first, 1) - 1 : last or None])
    return ToolOutput(wanted or "[no text]", source=f"{shown} (not saved yet in the editor)")


def _note_output_with_file_text(use: ToolResources, place: RootPath, digest: Digest) -> None:
    """Remember a result that shows text of this file. When it is folded, the agent no longer
    sees the text.
    """
    outputs = use.files_seen.outputs_with_text.setdefault(str(place.full_path), set())
    outputs.add(digest)


async def _read_unsaved_text(use: ToolResources, place: RootPath) -> str | None:
    """Return a file's text if the user's editor has unsaved changes to it, or None."""
    read_editor_file = use.workspace_resources.editor_files.get(use.context.conversation)
    if read_editor_file is None:
        return None
    text = await read_editor_file(place.full_path)
    if text is None:
        return None
    content = await asyncio.to_thread(workspace_roots.read_whole_file, use.roots, place)
    saved_text = file_text.decode_file_text(content).removeprefix("\ufeff")
    # Editors choose their own line ends, so only the lines are compared.
    if saved_text.splitlines() == text.splitlines():
        return None
    return text


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
    total = len(lines)
    if not lines[-1]:  # Behind the last line end, there is no line.
        total -= 1
    if first > max(total, 1):
        raise _no_such_line_error(shown, first, total)
    if 0 < last < len(lines):
        wanted = lines[first - 1 : last]
        wanted.append(b"")  # The last line ends with a line end, too.
    else:
        wanted = lines[first - 1 :]
    return ToolOutput(b"\n".join(wanted), source=shown)


def _no_such_line_error(shown: str, line: int, total: int) -> InvalidInput:
    return InvalidInput(f"There is no line {line:,} in {shown}; the last one is {total:,}.")


async def _iterate_file_pieces(use: ToolResources, place: RootPath) -> AsyncIterator[bytes]:
    with workspace_roots.open_for_reading(use.roots, place) as handle:
        while piece := await asyncio.to_thread(os.read, handle, _PIECE):
            yield piece


@dataclass(slots=True)
class _LineRange:
    """Picks the lines `first` to `last` (0: the last one) out of a file's pieces."""

    first: int
    last: int
    lines: list[bytes] = field(default_factory=list)  # Pieces of lines, each in its order.
    size: int = 0
    current_line: int = 1
    is_at_line_start: bool = True

    def add_file_piece(self, piece: bytes) -> None:
        parts = [piece]
        if b"\n" in piece:
            parts = piece.splitlines(keepends=True)
        for part in parts:
            is_before_end = not self.last or self.current_line <= self.last
            if self.first <= self.current_line and is_before_end:
                self.lines.append(part)
                self.size += len(part)
            if part.endswith(b"\n"):
                self.current_line += 1
        self.is_at_line_start = piece.endswith(b"\n")

    @property
    def has_all_lines(self) -> bool:
        return bool(self.last) and self.current_line > self.last

    @property
    def total_lines(self) -> int:
        """Return the number of lines of the file, once all of it was added."""
        if self.is_at_line_start:
            return self.current_line - 1
        return self.current_line


async def _read_lines_between(
    use: ToolResources, place: RootPath, first: int, last: int
) -> ToolOutput:
    """Read lines `first` to `last` (0: the last one) in pieces, and no more of a large file."""
    shown = use.roots.display_path(place)
    size = (await asyncio.to_thread(workspace_roots.stat_path, use.roots, place)).st_size
    wanted = _LineRange(first, last)
    sha256 = hashlib.sha256()
    async for piece in _iterate_file_pieces(use, place):
        wanted.add_file_piece(piece)
        sha256.update(piece)
        if wanted.size > LARGEST_WHOLE:  # The file may consist of a single very long line.
            raise _too_large_error(shown, size)
        if size > LARGEST_WHOLE and wanted.has_all_lines:
            break
    else:
        # All of the file was read, so a later change of it by others can be noticed.
        use.files_seen.digests_seen_by_agent[str(place.full_path)] = Digest(sha256.digest())
    total = wanted.total_lines
    if not wanted.lines:
        raise _no_such_line_error(shown, first, total)
    last_shown = min(last, total) if last else total
    source = f"{shown}:{first}-{last_shown}"
    stored = await use.store_result(b"".join(wanted.lines), source)
    return ToolOutput(stored=stored, source=source)


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
    sentence = f"{shown} is no text: {size:,} bytes of binary data, not shown."
    if find_kind_by_ending(place.full_path.name) is not None:
        sentence += " To read it as text, call read_document (with call_tool)."
    return ToolOutput(sentence, source=shown)


async def _read_or_suggest_path(
    read: Callable[[workspace_roots.WorkspaceRoots, RootPath], T],
    use: ToolResources,
    place: RootPath,
) -> T:
    """Return what `read` finds. If the file is missing, raise NotFound with a suggestion."""
    try:
        return await asyncio.to_thread(read, use.roots, place)
    except NotFound as error:
        suggestion = await asyncio.to_thread(_suggest_path, use.roots, place)
        raise NotFound(error.what, remedy=suggestion or error.remedy) from None


def _suggest_path(roots: workspace_roots.WorkspaceRoots, place: RootPath) -> str:
    """Suggest an existing path: without a line number or the workspace's name, or with
    a similar name.
    """
    without_line = re.sub(r":\d+(?:[:-]\d+)?$", "", place.inside)
    without_workspace = place.inside.removeprefix(f"{place.root.name}/")
    for inside in (without_line, without_workspace):
        if inside == place.inside:
            continue
        candidate = RootPath(place.root, inside)
        with suppress(HelixError):
            workspace_roots.stat_path(roots, candidate)
            return f"There is {roots.display_path(candidate)}."
    folder = place.inside.rpartition("/")[0]
    shown_paths = []
    for name in _find_similar_names(roots, RootPath(place.root, folder), place.full_path.name):
        similar = RootPath(place.root, f"{folder}/{name}".lstrip("/"))
        shown_paths.append(printable_name(roots.display_path(similar)))
    if not shown_paths:
        return ""
    return f"There is {', '.join(shown_paths)}."


def _find_similar_names(
    roots: workspace_roots.WorkspaceRoots, folder: RootPath, missing_name: str
) -> list[str]:
    """Return names in the folder that differ only in case or spaces, or else close ones."""
    try:
        names = [entry.name for entry in workspace_roots.list_folder(roots, folder)]
    except HelixError:
        return []
    wanted = _comparable_name(missing_name)
    same = [name for name in names if _comparable_name(name) == wanted]
    return same or difflib.get_close_matches(missing_name, names[:MOST_LISTED], 3, 0.75)


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
        text_before = file_text.decode_file_text(self.before or b"")
        text_after = file_text.decode_file_text(self.after or b"")
        return format_unified_diff(text_before, text_after, name, context)


async def write_file(args: ToolArguments, use: ToolResources) -> ToolOutput:
    place = use.roots.resolve_path(args.text_argument("path"))
    before = await asyncio.to_thread(workspace_roots.read_file_or_none, use.roots, place)
    _check_unchanged_if_read(use, place, before)
    shown = use.roots.display_path(place)
    content = args.text_argument("content")
    after = file_text.encode_like_before(before or b"", content, shown)
    if before is None:
        result = await ask_and_write(use, FileEdit(place, before, after), f"Create {shown}")
        lines = format_things(_count_lines(content), "line", "lines")
        return replace(result, output=f"Created {shown} ({lines}).")
    result = await ask_and_write(use, FileEdit(place, before, after), f"Overwrite {shown}")
    keeps_windows_ends = "\r" not in content and "\r\n" in file_text.decode_file_text(after)
    if isinstance(result.output, str) and keeps_windows_ends:
        note = "[It keeps its Windows line ends; a command can change them.]"
        return replace(result, output=f"{result.output}\n{note}\n")
    return result


def _count_lines(content: str) -> int:
    lines = content.count("\n")
    if content and not content.endswith("\n"):
        lines += 1
    return lines


async def edit_file(args: ToolArguments, use: ToolResources) -> ToolOutput:
    place = use.roots.resolve_path(args.text_argument("path"))
    before = await _read_or_suggest_path(workspace_roots.read_whole_file, use, place)
    _check_unchanged_if_read(use, place, before)
    shown = use.roots.display_path(place)
    old_text = args.text_argument("old_text")
    new_text = args.text_argument("new_text")
    tokens_to_show = _tokens_to_show_of_file(use, place)
    try:
        every = args.flag_argument("replace_all")
        after = await asyncio.to_thread(
            file_text.replace_text_in_file, before, old_text, new_text, shown, every=every
        )
    except InvalidInput as error:
        passages = ""
        if tokens_to_show:
            lines = file_text.decode_file_text(before[:LARGEST_UNSAVED]).split("\n")
            passages = await asyncio.to_thread(
                find_passages, use.tokens, lines, old_text, tokens_to_show
            )
        if not passages:
            raise
        explained = f"{error}\nWhat you have read of it is no longer shown. It says:\n{passages}"
        return replace(await _store_output_with_file_text(use, place, explained), ok=False)
    change = FileEdit(place, before, after)
    result = await ask_and_write(use, change, f"Edit {shown}")
    if not tokens_to_show or before == after:
        return result
    fuller_diff = await _find_fullest_diff(use, change, printable_name(shown), tokens_to_show)
    if not fuller_diff:
        return result
    output = await _store_output_with_file_text(use, place, fuller_diff)
    return replace(output, changes=result.changes)


async def _find_fullest_diff(
    use: ToolResources, change: FileEdit, name: str, most_tokens: int
) -> str:
    """Return the diff with as much of the file around it as fits, or an empty string."""
    for context_lines in AROUND_EDIT:
        diff = await asyncio.to_thread(change.format_as_diff, name, context_lines)
        may_fit = len(diff) <= LONGEST_TOKEN * most_tokens
        if may_fit and use.tokens.count_tokens(diff) <= most_tokens:
            return diff
    return ""


def _tokens_to_show_of_file(use: ToolResources, place: RootPath) -> int:
    """Return how many tokens of the file to show after its edit: none if the agent
    still sees what it read.
    """
    outputs = use.files_seen.outputs_with_text.get(str(place.full_path), ())
    if not outputs or any(map(use.context.is_shown, outputs)):
        return 0
    return min(use.context.whole_tokens, LINES_TOKENS)


async def _store_output_with_file_text(
    use: ToolResources, place: RootPath, text: str
) -> ToolOutput:
    shown = use.roots.display_path(place)
    stored = await use.store_result(text.encode("utf-8", "replace"), shown)
    _note_output_with_file_text(use, place, stored.digest)
    return ToolOutput(stored=stored, source=shown)


async def ask_and_write(use: ToolResources, change: FileEdit, title: str) -> ToolOutput:
    """Ask with the diff, keep both contents, write the file, and report it."""
    if change.before is not None:
        await _refuse_unsaved_file(use, change.root_path)
    shown = use.roots.display_path(change.root_path)
    if change.before == change.after:
        return ToolOutput(f"{shown} already is exactly so; nothing was written.", source=shown)
    diff = await asyncio.to_thread(change.format_as_diff, printable_name(shown))
    action = ToolAction(use.call.name, ActionEffect.EDIT, title, diff, path=shown)
    if autorun_files.changes_what_runs(
        change.root_path.inside, change.before or b"", change.after or b""
    ):
        action = replace(
            action,
            reason_to_ask="other programs run the contents of this file",
            separate_permission="runs_later",
        )
    await use.permit(action)
    digest_before = await _store_version(use, change.before, shown)
    digest_after = await _store_version(use, change.after, shown)
    await _finish_write_ignoring_cancel(use, change)
    use.files_seen.set_content_seen(change.root_path.full_path, digest_after)
    fact = FileChanged(str(change.root_path.full_path), digest_before, digest_after)
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
    expected = _digest_or_none(change.before)
    if change.after is not None:
        workspace_roots.replace_file(roots, change.root_path, change.after, expected=expected)
    elif expected is not None:
        workspace_roots.delete_file(roots, change.root_path, expected=expected)


def _digest_or_none(content: bytes | None) -> Digest | None:
    if content is None:
        return None
    return Digest.of_content(content)


async def _store_version(
    use: ToolResources, content: bytes | None, shown_path: str
) -> Digest | None:
    if content is None:
        return None
    stored = await use.store_result(content, shown_path)
    return stored.digest


def _check_unchanged_if_read(use: ToolResources, place: RootPath, now: bytes | None) -> None:
    """Raise ActionRefused if the file differs from what this conversation last saw."""
    known = use.files_seen.digests_seen_by_agent.get(str(place.full_path))
    if known is None or _digest_or_none(now) == known:
        return
    what = "was changed"  # By whom isn't known: perhaps the user.
    if now is None:
        what = "was deleted"
        use.files_seen.digests_seen_by_agent.pop(str(place.full_path))
    raise ActionRefused(
        f"{use.roots.display_path(place)} {what} since you read it; nothing was written.",
        remedy="Read the file again, then change the current version.",
    )


async def find_changes_by_command(use: ToolResources) -> tuple[FileChanged, ...]:
    """Find files, read whole or written here, that a command changed, so that this can
    be undone, too.
    """
    changes = []
    for path, digest_before in list(use.files_seen.digests_known_on_disk.items()):
        place = use.roots.with_nothing_hidden.resolve_path(path)
        content = await asyncio.to_thread(_read_if_small, use, place)
        digest_now = _digest_or_none(content)
        if digest_now == digest_before:
            continue
        if content is None and await asyncio.to_thread(place.full_path.exists):
            continue  # It has become too large, or may not be read any more.
        await _store_version(use, content, use.roots.display_path(place))
        changes.append(FileChanged(path, digest_before, digest_now))
        if digest_now is None:
            del use.files_seen.digests_known_on_disk[path]
        else:
            use.files_seen.digests_known_on_disk[path] = digest_now
    return tuple(changes)


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
    entries = await asyncio.to_thread(workspace_roots.list_folder, use.roots, place)
    entries.sort(key=lambda entry: (entry.kind != "folder", entry.name))
    lines = [_format_folder_entry(entry) for entry in entries[:MOST_LISTED]]
    if len(entries) > MOST_LISTED:
        lines.append(f"[… {len(entries) - MOST_LISTED:,} more, not listed]")
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
    pattern = args.text_argument("pattern")
    place = use.roots.resolve_path(args.text_argument("path", "."))
    full_pattern = use.roots.split_full_pattern(pattern)
    if full_pattern is not None:
        root, pattern = full_pattern
        place = use.roots.resolve_path(str(root))
    shown = use.roots.display_path(place)
    await use.permit(
        ToolAction(ToolName.GLOB_FILES, ActionEffect.READ, f"Find {pattern}", pattern, path=shown)
    )
    paths = await asyncio.to_thread(
        glob_patterns.find_paths_by_glob, use.roots, place, pattern, MOST_LISTED + 1
    )
    if not paths:
        return ToolOutput(_say_nothing_fits(pattern, shown), source=pattern)
    lines = [printable_name(path) for path in paths[:MOST_LISTED]]
    if len(paths) > MOST_LISTED:
        lines.append(
            f"[… more than {MOST_LISTED:,} files fit; the rest is not listed. Use a narrower pattern.]"
        )
    return ToolOutput("\n".join(lines), source=pattern)


def _say_nothing_fits(pattern: str, shown_folder: str) -> str:
    if "/" in pattern or "**" in pattern:
        return f"[no file fits {pattern}]"
    return f"[no file fits {pattern} in {shown_folder} itself; **/{pattern} looks in the folders below, too]"


def printable_name(name: str) -> str:
    """Return a file name on one line, with control characters and undecodable bytes escaped."""
    if name.isprintable():
        return name
    return name.encode("unicode_escape", "backslashreplace").decode("ascii")


TOOLS = (
    declare_tool(ToolName.READ_FILE, read_file),
    declare_tool(ToolName.WRITE_FILE, write_file),
    declare_tool(ToolName.EDIT_FILE, edit_file),
    declare_tool(ToolName.LIST_FILES, list_files),
    declare_tool(ToolName.GLOB_FILES, glob_files),
)
