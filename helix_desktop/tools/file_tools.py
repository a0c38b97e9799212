"""The tools that read and change files: read_file, write_file, edit_file, list_files, glob_files.

A file is read unchanged, so its cache entry has the file's hash. Every change keeps the content
before and after it in the cache, and is only written if the file still is what the question showed.
"""

import asyncio
import difflib
import hashlib
import io
import os
import re
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import field, replace
from typing import TypeVar

from helix_desktop.cancellation import finish_ignoring_cancellation
from helix_desktop.documents.document_kinds import find_kind_by_ending
from helix_desktop.engine.changes.diff_hunks import CONTEXT
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.content_recall import LINES_TOKENS
from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.ports import VERSION, EntryOrigin
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
from helix_desktop.processes.folders_of_agents import is_setting_in_home
from helix_desktop.processes.starter import is_of_own_environment
from helix_desktop.tools import autorun_files, file_text, glob_patterns, workspace_roots
from helix_desktop.tools.built_in_tool import (
    AnsweredRead,
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
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
CONTEXT_LINE_COUNTS = (1_000_000, 300, 100, 30, 10)
# No token has more characters, so a text can't fit if it has more for each token left.
LONGEST_TOKEN = 12
_PIECE_BYTES = 1 << 20
_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)

# --- The tool read_file ---


async def read_file(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """Read a file or some of its lines. The tool `read_file`.

    What is unsaved in an editor comes before what is on the disk. If the same was read before
    and is unchanged, the earlier output is named instead of being repeated.
    """
    path_text = args.text_argument("path")
    root_path = await resources.permit_reading(path_text, ToolName.READ_FILE, "Read {}")
    displayed_path = resources.roots.display_path(root_path)
    first_line = args.number_argument("first_line", 0)
    last_line = args.number_argument("last_line", 0)
    if last_line and last_line < max(first_line, 1):
        raise InvalidInput(f"last_line {last_line} is before first_line {first_line}.")

    status = await _read_or_suggest_path(workspace_roots.stat_path, resources, root_path)
    if status.st_size <= LARGEST_UNSAVED:
        unsaved = await _read_unsaved_text(resources, root_path)
        if unsaved is not None:
            return _output_of_unsaved_text(unsaved, first_line, last_line, displayed_path)

    # If the same lines of the unchanged file were read before, the earlier result is named.
    read_key = (str(root_path.full_path), first_line, last_line)
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    earlier_read = resources.files_seen.answered_reads.get(read_key)
    if earlier_read is not None and earlier_read.stamp == stamp:
        if await _is_result_in_cache(resources, earlier_read.result):
            return replace(earlier_read.result, repeat_of=earlier_read.call)

    result = await _read_any_file(resources, root_path, first_line, last_line)
    if result.stored is not None:
        _note_output_with_file_text(resources, root_path, result.stored.digest)
    resources.files_seen.answered_reads[read_key] = AnsweredRead(stamp, result, resources.call.id)
    return result


def _output_of_unsaved_text(
    text: str, first_line: int, last_line: int, displayed_path: str
) -> ToolOutput:
    """Return the lines that were asked for of a text that is not saved yet in the user's editor."""
    # Only line ends count, as in the file: `splitlines` would also end a line at a form feed.
    lines = io.StringIO(text, newline="\n").readlines()
    first_index = max(first_line, 1) - 1
    end_index = last_line or len(lines)
    wanted_text = "".join(lines[first_index:end_index]) or "[no text]"
    return ToolOutput(wanted_text, source=f"{displayed_path} (not saved yet in the editor)")


def _note_output_with_file_text(
    resources: ToolResources, root_path: RootPath, digest: Digest
) -> None:
    """Remember a result that shows text of this file. When it is folded, the agent no longer
    sees the text.
    """
    outputs = resources.files_seen.outputs_with_text.setdefault(str(root_path.full_path), set())
    outputs.add(digest)


async def _read_unsaved_text(resources: ToolResources, root_path: RootPath) -> str | None:
    """Return a file's text if the user's editor has unsaved changes to it, or None."""
    read_editor_file = resources.workspace_resources.editor_files.get(
        resources.context.conversation
    )
    if read_editor_file is None:
        return None
    text = await read_editor_file(root_path.full_path)
    if text is None:
        return None
    content = await asyncio.to_thread(workspace_roots.read_whole_file, resources.roots, root_path)
    saved_text = file_text.decode_file_text(content).removeprefix("\ufeff")
    # Editors choose their own line ends, so only the lines are compared.
    if saved_text.splitlines() == text.splitlines():
        return None
    return text


async def _refuse_unsaved_file(resources: ToolResources, root_path: RootPath) -> None:
    """Refuse to overwrite a file that has unsaved changes in the user's editor."""
    with suppress(NotFound):
        if await _read_unsaved_text(resources, root_path) is not None:
            raise ActionRefused(
                f"{resources.roots.display_path(root_path)} has changes in the user's editor that are not saved; nothing was written.",
                remedy="Ask the user to save the file or to discard the changes, then read it again.",
            )


async def _is_result_in_cache(resources: ToolResources, result: ToolOutput) -> bool:
    """Whether the cache still has what was read. It may have been forgotten or damaged."""
    entries = list(result.images)
    if result.stored:
        entries.append(result.stored)
    try:
        for entry in entries:
            await resources.cache.read_range(entry.digest, 0, 1)
    except (NotFound, CacheCorrupt):
        return False
    return True


async def _read_any_file(
    resources: ToolResources, root_path: RootPath, first_line: int, last_line: int
) -> ToolOutput:
    """Read a file from the disk by its kind, which its first bytes tell: an image, another
    binary file, which is only described, or text in UTF-16 or else UTF-8.
    """
    roots = resources.roots
    displayed_path = roots.display_path(root_path)
    beginning = await asyncio.to_thread(workspace_roots.read_file_piece, roots, root_path, 0, 8192)
    media_type = _media_type_of_image(beginning)
    if media_type:
        return await _read_image(resources, root_path, media_type)
    is_utf8 = file_text.encoding_by_mark(beginning) == "utf-8"
    if is_utf8 and b"\0" in beginning:
        return await _describe_binary_file(resources, root_path)
    size = await _size_of_file(resources, root_path)
    if size > LARGEST_WHOLE and not last_line:
        raise _too_large_error(displayed_path, size)
    first_wanted = first_line or 1
    if not is_utf8:
        return await _read_utf16_lines(resources, root_path, first_wanted, last_line)
    if first_line or last_line:
        return await _read_lines_between(resources, root_path, first_wanted, last_line)
    pieces = _iterate_file_pieces(resources, root_path)
    stored = await resources.store_result(pieces, displayed_path)
    resources.files_seen.set_content_seen(root_path.full_path, stored.digest)
    if not stored.size:
        return ToolOutput("[the file is empty]", source=displayed_path)
    return ToolOutput(stored=stored, source=displayed_path)


def _media_type_of_image(beginning: bytes) -> str:
    """The media type that the first bytes of a file tell, or an empty string."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    for signature, media_type in _IMAGE_SIGNATURES:
        if beginning.startswith(signature):
            return media_type
    return ""


def _too_large_error(displayed_path: str, size: int) -> InvalidInput:
    return InvalidInput(
        f"{displayed_path} is too large: it has {size:,} bytes. Only files up to {LARGEST_WHOLE:,} bytes are read in full.",
        remedy="Read some lines with first_line and last_line, or use search_files.",
    )


async def _read_utf16_lines(
    resources: ToolResources, root_path: RootPath, first_line: int, last_line: int
) -> ToolOutput:
    """Read lines of a file in UTF-16, as a text in UTF-8. Writing the file later keeps UTF-16.

    `last_line` 0 means: to the end. What does not turn out to be UTF-16 is only described.
    """
    displayed_path = resources.roots.display_path(root_path)
    content = await asyncio.to_thread(workspace_roots.read_whole_file, resources.roots, root_path)
    if file_text.detect_encoding(content) == "utf-8":
        return await _describe_binary_file(resources, root_path)
    stored = await resources.store_result(content, displayed_path)
    resources.files_seen.set_content_seen(root_path.full_path, stored.digest)
    text = file_text.decode_file_text(content).removeprefix("\ufeff")
    lines = text.encode("utf-8", "replace").split(b"\n")
    line_count = len(lines)
    if not lines[-1]:  # Behind the last line end, there is no line.
        line_count -= 1
    if first_line > max(line_count, 1):
        raise _no_such_line_error(displayed_path, first_line, line_count)
    if 0 < last_line < len(lines):
        wanted_lines = lines[first_line - 1 : last_line]
        wanted_lines.append(b"")  # The last line ends with a line end, too.
    else:
        wanted_lines = lines[first_line - 1 :]
    return ToolOutput(b"\n".join(wanted_lines), source=displayed_path)


def _no_such_line_error(displayed_path: str, line: int, line_count: int) -> InvalidInput:
    return InvalidInput(
        f"There is no line {line:,} in {displayed_path}; the last one is {line_count:,}."
    )


async def _iterate_file_pieces(
    resources: ToolResources, root_path: RootPath
) -> AsyncIterator[bytes]:
    """Yield a file's content piece by piece, each read while the program goes on."""
    with workspace_roots.open_for_reading(resources.roots, root_path) as handle:
        while True:
            piece = await asyncio.to_thread(os.read, handle, _PIECE_BYTES)
            if not piece:
                return
            yield piece


@dataclass(slots=True)
class _LineSelection:
    """Picks the lines `first_line` to `last_line` (0: the last one) out of a file's pieces."""

    first_line: int
    last_line: int
    # Lines and parts of lines, in their order in the file.
    selected_pieces: list[bytes] = field(default_factory=list)
    selected_bytes: int = 0
    current_line: int = 1
    is_at_line_start: bool = True

    def add_file_piece(self, piece: bytes) -> None:
        """Keep the wanted lines of the next piece of the file, and count its line ends.

        A line may begin in one piece and go on in the next, so parts of lines are kept as they
        come.
        """
        parts = [piece]
        if b"\n" in piece:
            parts = piece.splitlines(keepends=True)
        for part in parts:
            is_before_end = not self.last_line or self.current_line <= self.last_line
            if self.first_line <= self.current_line and is_before_end:
                self.selected_pieces.append(part)
                self.selected_bytes += len(part)
            if part.endswith(b"\n"):
                self.current_line += 1
        self.is_at_line_start = piece.endswith(b"\n")

    @property
    def has_all_lines(self) -> bool:
        return bool(self.last_line) and self.current_line > self.last_line

    @property
    def lines_read(self) -> int:
        """Return how many lines the added pieces have."""
        if self.is_at_line_start:
            return self.current_line - 1
        return self.current_line


async def _read_lines_between(
    resources: ToolResources, root_path: RootPath, first_line: int, last_line: int
) -> ToolOutput:
    """Read lines `first_line` to `last_line` (0: the last one) in pieces, and no more of a large file."""
    displayed_path = resources.roots.display_path(root_path)
    size = await _size_of_file(resources, root_path)
    selection = _LineSelection(first_line, last_line)
    sha256 = hashlib.sha256()
    was_read_to_end = True
    async for piece in _iterate_file_pieces(resources, root_path):
        selection.add_file_piece(piece)
        sha256.update(piece)
        # The file may consist of a single very long line.
        if selection.selected_bytes > LARGEST_WHOLE:
            raise _too_large_error(displayed_path, size)
        if size > LARGEST_WHOLE and selection.has_all_lines:
            was_read_to_end = False
            break
    if was_read_to_end:
        # A later change by others can be noticed.
        digest = Digest(sha256.digest())
        resources.files_seen.digests_seen_by_agent[str(root_path.full_path)] = digest
    if not selection.selected_pieces:
        raise _no_such_line_error(displayed_path, first_line, selection.lines_read)

    last_selected_line = selection.lines_read
    if last_line:
        last_selected_line = min(last_line, selection.lines_read)
    source = f"{displayed_path}:{first_line}-{last_selected_line}"
    stored = await resources.store_result(b"".join(selection.selected_pieces), source)
    return ToolOutput(stored=stored, source=source)


async def _read_image(resources: ToolResources, root_path: RootPath, media_type: str) -> ToolOutput:
    """Keep an image, which the model gets to see, and describe it in words."""
    displayed_path = resources.roots.display_path(root_path)
    content = await asyncio.to_thread(
        workspace_roots.read_whole_file, resources.roots, root_path, LARGEST_IMAGE
    )
    image = await resources.store_result(content, displayed_path, media_type)
    return ToolOutput(
        f"[image {displayed_path}, {media_type}, {len(content):,} bytes]",
        source=displayed_path,
        images=(image,),
    )


async def _describe_binary_file(resources: ToolResources, root_path: RootPath) -> ToolOutput:
    displayed_path = resources.roots.display_path(root_path)
    size = await _size_of_file(resources, root_path)
    sentence = f"{displayed_path} is no text: {size:,} bytes of binary data, not shown."
    if find_kind_by_ending(root_path.full_path.name) is not None:
        sentence += " To read it as text, call read_document (with call_tool)."
    return ToolOutput(sentence, source=displayed_path)


async def _size_of_file(resources: ToolResources, root_path: RootPath) -> int:
    status = await asyncio.to_thread(workspace_roots.stat_path, resources.roots, root_path)
    return status.st_size


async def _read_or_suggest_path(
    read: Callable[[workspace_roots.WorkspaceRoots, RootPath], T],
    resources: ToolResources,
    root_path: RootPath,
) -> T:
    """Return what `read` finds. If the file is missing, raise NotFound with a suggestion."""
    try:
        return await asyncio.to_thread(read, resources.roots, root_path)
    except NotFound as error:
        suggestion = await asyncio.to_thread(_suggest_path, resources.roots, root_path)
        raise NotFound(error.what, remedy=suggestion or error.remedy) from None


def _suggest_path(roots: workspace_roots.WorkspaceRoots, root_path: RootPath) -> str:
    """Suggest an existing path: without a line number or the workspace's name, or with
    a similar name.
    """
    without_line = re.sub(r":\d+(?:[:-]\d+)?$", "", root_path.inside)
    without_workspace = root_path.inside.removeprefix(f"{root_path.root.name}/")
    for inside in (without_line, without_workspace):
        if inside == root_path.inside:
            continue
        candidate = RootPath(root_path.root, inside)
        with suppress(HelixError):
            workspace_roots.stat_path(roots, candidate)
            return f"There is {roots.display_path(candidate)}."
    return _suggest_similar_names(roots, root_path)


def _suggest_similar_names(roots: workspace_roots.WorkspaceRoots, root_path: RootPath) -> str:
    folder_inside = root_path.inside.rpartition("/")[0]
    folder = RootPath(root_path.root, folder_inside)
    shown_paths = []
    for name in _find_similar_names(roots, folder, root_path.full_path.name):
        similar_path = f"{folder_inside}/{name}".lstrip("/")
        displayed_path = roots.display_path(RootPath(root_path.root, similar_path))
        shown_paths.append(printable_name(displayed_path))
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
    wanted_name = _comparable_name(missing_name)
    same_but_for_spelling = [name for name in names if _comparable_name(name) == wanted_name]
    if same_but_for_spelling:
        return same_but_for_spelling
    return difflib.get_close_matches(missing_name, names[:MOST_LISTED], n=3, cutoff=0.75)


def _comparable_name(name: str) -> str:
    """Return a name without its case, and with all kinds of blanks as one."""
    normalized = unicodedata.normalize("NFKC", name)
    words = normalized.casefold().split()
    return " ".join(words)


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


async def write_file(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """Create a file or replace its whole content. The tool `write_file`. It is refused if the file
    has changed since the model read it; an existing file keeps its encoding and line ends.
    """
    root_path = await asyncio.to_thread(
        resources.roots.resolve_real_path, args.text_argument("path")
    )
    before = await asyncio.to_thread(workspace_roots.read_file_or_none, resources.roots, root_path)
    _check_unchanged_if_read(resources, root_path, before)
    displayed_path = resources.roots.display_path(root_path)
    content = args.text_argument("content")
    after = file_text.encode_like_before(before or b"", content, displayed_path)
    change = FileEdit(root_path, before, after)
    if before is None:
        result = await ask_and_write(resources, change, f"Create {displayed_path}")
        lines = format_things(_count_lines(content), "line", "lines")
        return replace(result, output=f"Created {displayed_path} ({lines}).")
    result = await ask_and_write(resources, change, f"Overwrite {displayed_path}")
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


async def edit_file(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """Replace a text in a file. The tool `edit_file`.

    If what the model has read of the file is no longer in its context, the output says more
    than usual: passages like the text that was not found, or more of what is around a change.
    """
    root_path = await asyncio.to_thread(
        resources.roots.resolve_real_path, args.text_argument("path")
    )
    before = await _read_or_suggest_path(workspace_roots.read_whole_file, resources, root_path)
    _check_unchanged_if_read(resources, root_path, before)
    displayed_path = resources.roots.display_path(root_path)
    old_text = args.text_argument("old_text")
    new_text = args.text_argument("new_text")
    replace_all = args.flag_argument("replace_all")
    tokens_to_show = _tokens_to_show_of_file(resources, root_path)
    try:
        after = await asyncio.to_thread(
            file_text.replace_text_in_file,
            before,
            old_text,
            new_text,
            displayed_path,
            every=replace_all,
        )
    except InvalidInput as error:
        passages = await _find_passages_of_file(resources, before, old_text, tokens_to_show)
        if not passages:
            raise
        explanation = f"{error}\nWhat you have read of it is no longer shown. It says:\n{passages}"
        output = await _store_output_with_file_text(resources, root_path, explanation)
        return replace(output, ok=False)

    change = FileEdit(root_path, before, after)
    result = await ask_and_write(resources, change, f"Edit {displayed_path}")
    if not tokens_to_show or before == after:
        return result
    fuller_diff = await _find_fullest_diff(
        resources, change, printable_name(displayed_path), tokens_to_show
    )
    if not fuller_diff:
        return result
    output = await _store_output_with_file_text(resources, root_path, fuller_diff)
    return replace(output, changes=result.changes)


async def _find_passages_of_file(
    resources: ToolResources, content: bytes, searched_text: str, most_tokens: int
) -> str:
    """Return the passages of the file that are most like the text that was not found."""
    if not most_tokens:
        return ""
    lines = file_text.decode_file_text(content[:LARGEST_UNSAVED]).split("\n")
    return await asyncio.to_thread(
        find_passages, resources.tokens, lines, searched_text, most_tokens
    )


async def _find_fullest_diff(
    resources: ToolResources, change: FileEdit, name: str, most_tokens: int
) -> str:
    """Return the diff with as much of the file around it as fits, or an empty string."""
    for context_lines in CONTEXT_LINE_COUNTS:
        diff = await asyncio.to_thread(change.format_as_diff, name, context_lines)
        may_fit = len(diff) <= LONGEST_TOKEN * most_tokens
        if may_fit and resources.tokens.count_tokens(diff) <= most_tokens:
            return diff
    return ""


def _tokens_to_show_of_file(resources: ToolResources, root_path: RootPath) -> int:
    """Return how many tokens of the file to show after its edit: none if the agent
    still sees what it read.
    """
    outputs_read = resources.files_seen.outputs_with_text.get(str(root_path.full_path), ())
    if not outputs_read or any(map(resources.context.is_shown, outputs_read)):
        return 0
    return min(resources.context.whole_tokens, LINES_TOKENS)


async def _store_output_with_file_text(
    resources: ToolResources, root_path: RootPath, text: str
) -> ToolOutput:
    """Store a text that shows parts of this file as the call's output, and remember that the
    agent has seen the file in it.
    """
    displayed_path = resources.roots.display_path(root_path)
    stored = await resources.store_result(text.encode("utf-8", "replace"), displayed_path)
    _note_output_with_file_text(resources, root_path, stored.digest)
    return ToolOutput(stored=stored, source=displayed_path)


async def ask_and_write(resources: ToolResources, change: FileEdit, title: str) -> ToolOutput:
    """Ask with the diff, keep both contents, write the file, and report it."""
    root_path = change.root_path
    if change.before is not None:
        await _refuse_unsaved_file(resources, root_path)
    displayed_path = resources.roots.display_path(root_path)
    if change.before == change.after:
        return ToolOutput(
            f"{displayed_path} already is exactly so; nothing was written.", source=displayed_path
        )

    diff = await asyncio.to_thread(change.format_as_diff, printable_name(displayed_path))
    action = ToolAction(
        resources.call.name,
        ActionEffect.EDIT,
        title,
        diff,
        path=displayed_path,
        named_path=root_path.named,
    )
    if _do_other_programs_run(change):
        action = replace(
            action,
            reason_to_ask="other programs run the contents of this file",
            separate_permission="runs_later",
        )
    await resources.permit(action)
    digest_before = await _store_version(resources, change.before, displayed_path)
    digest_after = await _store_version(resources, change.after, displayed_path)
    await _finish_write_ignoring_cancel(resources, change)
    resources.files_seen.set_content_seen(root_path.full_path, digest_after)
    fact = FileChanged(str(root_path.full_path), digest_before, digest_after)
    return ToolOutput(diff or f"Wrote {displayed_path}.", source=displayed_path, changes=(fact,))


def _do_other_programs_run(change: FileEdit) -> bool:
    """Whether what is written is run later, without anybody being asked then."""
    path = change.root_path
    content_before = change.before or b""
    content_after = change.after or b""
    if autorun_files.changes_what_runs(path.inside, content_before, content_after):
        return True
    # In a home folder as a workspace, these are the user's settings and programs.
    is_of_user = is_setting_in_home(path.full_path, path.root)
    return is_of_user or is_of_own_environment(path.full_path)


async def _finish_write_ignoring_cancel(resources: ToolResources, change: FileEdit) -> None:
    """Finish and record a write even if the turn is stopped, so that no file changes
    without a fact.
    """
    writing = asyncio.get_running_loop().run_in_executor(None, write_edit, resources.roots, change)
    await finish_ignoring_cancellation(writing)


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
    resources: ToolResources, content: bytes | None, shown_path: str
) -> Digest | None:
    if content is None:
        return None
    stored = await resources.cache.store_content(content, EntryOrigin(VERSION, shown_path))
    return stored.digest


def _check_unchanged_if_read(
    resources: ToolResources, root_path: RootPath, content_now: bytes | None
) -> None:
    """Raise ActionRefused if the file differs from what this conversation last saw."""
    digest_seen = resources.files_seen.digests_seen_by_agent.get(str(root_path.full_path))
    if digest_seen is None or _digest_or_none(content_now) == digest_seen:
        return
    what_happened = "was changed"  # By whom isn't known: perhaps the user.
    if content_now is None:
        what_happened = "was deleted"
        resources.files_seen.digests_seen_by_agent.pop(str(root_path.full_path))
    raise ActionRefused(
        f"{resources.roots.display_path(root_path)} {what_happened} since you read it; nothing was written.",
        remedy="Read the file again, then change the current version.",
    )


async def find_changes_by_command(resources: ToolResources) -> tuple[FileChanged, ...]:
    """Find files, read whole or written here, that a command changed, so that this can
    be undone, too.
    """
    changes = []
    for path, digest_before in list(resources.files_seen.digests_known_on_disk.items()):
        root_path = resources.roots.with_nothing_hidden.resolve_path(path)
        content = await asyncio.to_thread(_read_if_small, resources, root_path)
        digest_now = _digest_or_none(content)
        if digest_now == digest_before:
            continue
        if content is None and await asyncio.to_thread(root_path.full_path.exists):
            continue  # It has become too large, or may not be read any more.
        await _store_version(resources, content, resources.roots.display_path(root_path))
        changes.append(FileChanged(path, digest_before, digest_now))
        if digest_now is None:
            del resources.files_seen.digests_known_on_disk[path]
        else:
            resources.files_seen.digests_known_on_disk[path] = digest_now
    return tuple(changes)


def _read_if_small(resources: ToolResources, root_path: RootPath) -> bytes | None:
    with suppress(HelixError):
        return workspace_roots.read_whole_file(resources.roots, root_path)
    return None


# --- The tools list_files and glob_files ---


async def list_files(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """List a folder, its folders first. The tool `list_files`."""
    path_text = args.text_argument("path", ".")
    root_path = await resources.permit_reading(path_text, ToolName.LIST_FILES, "List {}")
    entries = await asyncio.to_thread(workspace_roots.list_folder, resources.roots, root_path)
    entries.sort(key=lambda entry: (entry.kind != "folder", entry.name))
    lines = [_format_folder_entry(entry) for entry in entries[:MOST_LISTED]]
    if len(entries) > MOST_LISTED:
        lines.append(f"[… {len(entries) - MOST_LISTED:,} more, not listed]")
    if not lines:
        lines.append("[an empty folder]")
    displayed_path = resources.roots.display_path(root_path)
    return ToolOutput("\n".join(lines), source=displayed_path)


def _format_folder_entry(item: FolderEntry) -> str:
    name = printable_name(item.name)
    match item.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name}  {item.size:,}"
    return f"{name}  ({item.kind})"


async def glob_files(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """List the files that fit a pattern. The tool `glob_files`. A pattern that is a full path
    says itself where to look, whatever the argument `path` says.
    """
    given_pattern = args.text_argument("pattern")
    given_folder = args.text_argument("path", ".")
    folder_and_pattern = resources.roots.split_full_pattern(given_pattern)
    if folder_and_pattern is None:
        pattern = given_pattern
        named_folder = given_folder
    else:
        folder, pattern = folder_and_pattern
        named_folder = str(folder)
    root_path = await asyncio.to_thread(resources.roots.resolve_real_path, named_folder)
    displayed_path = resources.roots.display_path(root_path)
    # The question names the pattern and not the folder, unlike that of `permit_reading`.
    action = ToolAction(
        ToolName.GLOB_FILES,
        ActionEffect.READ,
        f"Find {pattern}",
        pattern,
        path=displayed_path,
        named_path=root_path.named,
    )
    await resources.permit(action)
    paths = await asyncio.to_thread(
        glob_patterns.find_paths_by_glob, resources.roots, root_path, pattern, MOST_LISTED + 1
    )
    if not paths:
        return ToolOutput(_describe_no_matching_file(pattern, displayed_path), source=pattern)
    lines = [printable_name(path) for path in paths[:MOST_LISTED]]
    if len(paths) > MOST_LISTED:
        lines.append(
            f"[… more than {MOST_LISTED:,} files fit; the rest is not listed. Use a narrower pattern.]"
        )
    return ToolOutput("\n".join(lines), source=pattern)


def _describe_no_matching_file(pattern: str, shown_folder: str) -> str:
    if "/" in pattern or "**" in pattern:
        return f"[no file fits {pattern}]"
    return f"[no file fits {pattern} in {shown_folder} itself; **/{pattern} looks in the folders below, too]"


def printable_name(name: str) -> str:
    """Return a file name on one line, with control characters and undecodable bytes escaped."""
    if name.isprintable():
        return name
    return name.encode("unicode_escape", "backslashreplace").decode("ascii")


READ_FILE = ToolDeclaration(
    ToolName.READ_FILE,
    "Read a text file, or some of its lines. Images are shown.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "first_line": {"type": "integer", "minimum": 1},
            "last_line": {"type": "integer", "minimum": 1},
        },
        "required": ["path"],
    },
)
WRITE_FILE = ToolDeclaration(
    ToolName.WRITE_FILE,
    "Create a file, or replace all of its content.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
    runs_alone=True,
    is_brief=True,
)
EDIT_FILE = ToolDeclaration(
    ToolName.EDIT_FILE,
    "Replace a text in a file. old_text must match exactly, and only once unless replace_all is set.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "old_text": {"type": "string"},
            "new_text": {"type": "string"},
            "replace_all": {"type": "boolean"},
        },
        "required": ["path", "old_text", "new_text"],
    },
    runs_alone=True,
)
LIST_FILES = ToolDeclaration(
    ToolName.LIST_FILES,
    "List a folder, with sizes in bytes.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": []},
)
GLOB_FILES = ToolDeclaration(
    ToolName.GLOB_FILES,
    "Find files by name, such as **/*.py or src/**/test_*.{ts,tsx}.",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "The folder to start in"},
        },
        "required": ["pattern"],
    },
    is_rare=True,
)
TOOLS = (
    BuiltInTool(READ_FILE, read_file),
    BuiltInTool(WRITE_FILE, write_file),
    BuiltInTool(EDIT_FILE, edit_file),
    BuiltInTool(LIST_FILES, list_files),
    BuiltInTool(GLOB_FILES, glob_files),
)
