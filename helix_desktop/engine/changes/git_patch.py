"""Writes changes as a patch for `git apply`: text as hunks, binary files whole."""

import base64
import hashlib
import zlib
from collections.abc import Iterator

from helix_desktop.engine.changes.diff_hunks import CONTEXT, Hunk, find_hunks, is_binary
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem

NOWHERE = b"/dev/null"
_LINE = 52  # The number of bytes that one line of git's binary patches encodes.
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


def format_git_patch(
    name: str, before: tuple[TreeItem | None, bytes], after: tuple[TreeItem | None, bytes]
) -> bytes:
    """Format a change, given the item and content before and after, if git can express it."""
    if (
        before[0] is not None
        and after[0] is not None
        and _kind_for_git(before[0]) != _kind_for_git(after[0])
    ):
        nothing: tuple[None, bytes] = (None, b"")
        return format_git_patch(name, before, nothing) + format_git_patch(name, nothing, after)
    old = before if before[0] is not None and before[0].kind in _IN_GIT else (None, b"")
    new = after if after[0] is not None and after[0].kind in _IN_GIT else (None, b"")
    if old == new or (old[0] is None and new[0] is None):
        return b""
    return b"".join(_patch_lines(name, old, new))


def format_unified_diff(before: str, after: str, name: str, context: int = CONTEXT) -> str:
    """Return a text's changes for a reader, or an empty string."""
    old, new = (text.encode("utf-8", "surrogatepass") for text in (before, after))
    hunks = find_hunks(old, new, context)
    lines = b"".join(map(_format_hunk, hunks)).decode("utf-8", "surrogatepass")
    return f"--- {name}\n+++ {name}\n{lines}" if hunks else ""


def quote_git_name(name: bytes) -> bytes:
    """Quote a name as git does if it contains more than plain characters."""
    if all(byte in _PLAIN for byte in name):
        return name
    safe = (
        bytes((byte,)) if byte in _PLAIN else _ESCAPES.get(byte, b"\\%03o" % byte) for byte in name
    )
    return b'"' + b"".join(safe) + b'"'


def _kind_for_git(item: TreeItem) -> PathKind:
    return PathKind.FILE if item.kind is PathKind.TWIN else item.kind


def _patch_lines(
    name: str, old: tuple[TreeItem | None, bytes], new: tuple[TreeItem | None, bytes]
) -> Iterator[bytes]:
    raw = name.encode("utf-8", "surrogateescape")
    left, right = quote_git_name(b"a/" + raw), quote_git_name(b"b/" + raw)
    yield b"diff --git %s %s\n" % (left, right)
    old_mode, new_mode = (
        _git_mode(item) if item is not None else None for item in (old[0], new[0])
    )
    if old_mode is None and new_mode is not None:
        yield b"new file mode %s\n" % new_mode
    elif new_mode is None and old_mode is not None:
        yield b"deleted file mode %s\n" % old_mode
    elif old_mode is not None and new_mode is not None and old_mode != new_mode:
        yield b"old mode %s\nnew mode %s\n" % (old_mode, new_mode)
    if old[1] == new[1]:
        return
    if is_binary(old[1], new[1]):
        yield b"index %s..%s\n" % (_git_blob_hash(old), _git_blob_hash(new))
        yield b"GIT binary patch\n" + _binary_literal(new[1]) + _binary_literal(old[1])
        return
    yield b"--- %s\n" % (left if old[0] is not None else NOWHERE)
    yield b"+++ %s\n" % (right if new[0] is not None else NOWHERE)
    yield from map(_format_hunk, find_hunks(old[1], new[1]))


def _git_mode(item: TreeItem) -> bytes:
    if item.kind is PathKind.LINK:
        return b"120000"
    return b"100755" if item.mode & 0o100 else b"100644"


def _format_hunk(hunk: Hunk) -> bytes:
    return f"{hunk.unified_header}\n".encode() + b"".join(
        _patch_row(sign, line) for sign, line in hunk.rows
    )


def _patch_row(sign: str, line: bytes) -> bytes:
    ended = line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
    return sign.encode() + ended


def _git_blob_hash(version: tuple[TreeItem | None, bytes]) -> bytes:
    """Return git's hash of the content, or zeros if there is no file."""
    item, content = version
    if item is None:
        return b"0" * 40
    return (
        hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        .hexdigest()
        .encode()
    )


def _binary_literal(content: bytes) -> bytes:
    packed = zlib.compress(content)
    lines = [packed[at : at + _LINE] for at in range(0, len(packed), _LINE)]
    return b"literal %d\n%s\n" % (len(content), b"".join(_base85_line(line) for line in lines))


def _base85_line(line: bytes) -> bytes:
    length = len(line)
    letter = length + 64 if length <= 26 else length + 70
    return bytes((letter,)) + base64.b85encode(line, pad=True) + b"\n"
