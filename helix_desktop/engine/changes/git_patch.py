"""Writes changes as a patch for `git apply`: text as hunks, binary files whole."""

import base64
import hashlib
import string
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from helix_desktop.engine.changes.diff_hunks import CONTEXT, Hunk, find_hunks, is_binary
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem

NOWHERE = b"/dev/null"
_BYTES_IN_LINE = 52  # So many bytes are in one line of git's binary patches.
_LETTERS_OF_LENGTH = string.ascii_uppercase + string.ascii_lowercase
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord('"'), ord("\\")}
_ESCAPES = {
    7: b"\\a",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    11: b"\\v",
    12: b"\\f",
    13: b"\\r",
    34: b'\\"',
    92: b"\\\\",
}
_IN_GIT = (PathKind.FILE, PathKind.TWIN, PathKind.LINK)


class FileVersion(NamedTuple):
    """What was at a path at some time, None for nothing, and its content."""

    item: TreeItem | None
    content: bytes


_NOTHING = FileVersion(None, b"")  # The version of a file before or after it exists.


def format_git_patch(name: str, before: FileVersion, after: FileVersion) -> bytes:
    """Format a file's change as git does, or return nothing if git does not record such a change."""
    if _changes_kind_for_git(before.item, after.item):
        # Git has no patch from one kind to another, such as from a file to a link: the old
        # one is deleted, and the new one is created.
        deletion = format_git_patch(name, before, _NOTHING)
        return deletion + format_git_patch(name, _NOTHING, after)
    old = _version_for_git(before)
    new = _version_for_git(after)
    is_unknown_to_git = old.item is None and new.item is None
    if old == new or is_unknown_to_git:
        return b""
    return b"".join(_patch_lines(name, old, new))


def format_unified_diff(before: str, after: str, name: str, context: int = CONTEXT) -> str:
    """Return a text's changes for a reader, or an empty string."""
    # Texts of a model or a tool may have half of a surrogate pair.
    old = before.encode("utf-8", "surrogatepass")
    new = after.encode("utf-8", "surrogatepass")
    hunks = find_hunks(old, new, context)
    if not hunks:
        return ""
    rows = b"".join(map(_format_hunk, hunks)).decode("utf-8", "surrogatepass")
    return f"--- {name}\n+++ {name}\n{rows}"


def quote_git_name(name: bytes) -> bytes:
    """Quote a name as git does if it contains more than plain characters."""
    if all(byte in _PLAIN for byte in name):
        return name
    return b'"' + b"".join(map(_escape_byte, name)) + b'"'


def _escape_byte(byte: int) -> bytes:
    if byte in _PLAIN:
        return bytes((byte,))
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return b"\\%03o" % byte


def _changes_kind_for_git(before: TreeItem | None, after: TreeItem | None) -> bool:
    if before is None or after is None:
        return False
    return _kind_for_git(before) != _kind_for_git(after)


def _kind_for_git(item: TreeItem) -> PathKind:
    """Return the kind. A file with more than one name is a plain file for git."""
    if item.kind is PathKind.TWIN:
        return PathKind.FILE
    return item.kind


def _version_for_git(version: FileVersion) -> FileVersion:
    """Return the version, or nothing if git does not record this kind, such as a folder."""
    if version.item is None or version.item.kind not in _IN_GIT:
        return _NOTHING
    return version


def _patch_lines(name: str, old: FileVersion, new: FileVersion) -> Iterator[bytes]:
    """Yield a file's patch as git writes it: names, mode, and then its content's changes."""
    raw_name = name.encode("utf-8", "surrogateescape")
    old_name = quote_git_name(b"a/" + raw_name)
    new_name = quote_git_name(b"b/" + raw_name)
    yield b"diff --git %s %s\n" % (old_name, new_name)
    yield _mode_lines(old.item, new.item)
    if old.content == new.content:
        return

    if is_binary(old.content, new.content):
        yield b"index %s..%s\n" % (_git_blob_hash(old), _git_blob_hash(new))
        # The second literal is for `git apply --reverse`.
        yield b"GIT binary patch\n" + _binary_literal(new.content) + _binary_literal(old.content)
        return

    # A new file has no old name, and a deleted one no new name.
    if old.item is None:
        yield b"--- %s\n" % NOWHERE
    else:
        yield b"--- %s\n" % old_name
    if new.item is None:
        yield b"+++ %s\n" % NOWHERE
    else:
        yield b"+++ %s\n" % new_name
    for hunk in find_hunks(old.content, new.content):
        yield _format_hunk(hunk)


def _mode_lines(old_item: TreeItem | None, new_item: TreeItem | None) -> bytes:
    """Return what git says of a new or deleted file, or of a changed mode."""
    if old_item is not None and new_item is not None:
        old_mode = _git_mode(old_item)
        new_mode = _git_mode(new_item)
        if old_mode == new_mode:
            return b""
        return b"old mode %s\nnew mode %s\n" % (old_mode, new_mode)
    if new_item is not None:
        return b"new file mode %s\n" % _git_mode(new_item)
    if old_item is not None:
        return b"deleted file mode %s\n" % _git_mode(old_item)
    return b""


def _git_mode(item: TreeItem) -> bytes:
    if item.kind is PathKind.LINK:
        return b"120000"
    # Git records only whether the owner may run a file.
    if item.mode & 0o100:
        return b"100755"
    return b"100644"


def _format_hunk(hunk: Hunk) -> bytes:
    rows = b"".join(_patch_row(sign, line) for sign, line in hunk.rows)
    return f"{hunk.unified_header}\n".encode() + rows


def _patch_row(sign: str, line: bytes) -> bytes:
    row = sign.encode() + line
    if not line.endswith(b"\n"):
        row += b"\n\\ No newline at end of file\n"
    return row


def _git_blob_hash(version: FileVersion) -> bytes:
    """Return git's hash of the content, or zeros if there is no file."""
    if version.item is None:
        return b"0" * 40
    blob = b"blob %d\0" % len(version.content) + version.content
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest().encode()


def _binary_literal(content: bytes) -> bytes:
    """Return a whole file, compressed, as git's binary patches have it."""
    compressed = zlib.compress(content)
    lines: list[bytes] = []
    for start in range(0, len(compressed), _BYTES_IN_LINE):
        lines.append(_base85_line(compressed[start : start + _BYTES_IN_LINE]))
    return b"literal %d\n%s\n" % (len(content), b"".join(lines))


def _base85_line(line: bytes) -> bytes:
    """Encode a line after a letter for its length: A to Z are 1 to 26, and a to z 27 to 52."""
    length_letter = _LETTERS_OF_LENGTH[len(line) - 1]
    return length_letter.encode() + base64.b85encode(line, pad=True) + b"\n"
