"""Describes what is at each path of a folder at a moment and what differs later, and
encodes both for the cache.

A path is relative, with "/" and the number of its root before it: `0/src/main.c`. Names
may be any bytes, held as Python holds file names (surrogateescape). `store/FORMATS.md`
describes the stored forms.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, WrittenByNewerVersion

LONGEST_CHAIN = 2_000  # After this many differences in a row, the whole list of files is stored.
# The versions of the formats in which entries are written.
_VERSIONS = {"manifest": 1, "difference": 2}
_LONGEST_HEADER = 40  # An entry's first line, such as "helix manifest 1", has fewer bytes.
_BODY = struct.Struct("<cIQH")  # A file's kind, mode and size, and the length of its content
_LENGTH = struct.Struct("<H")


class PathKind(StrEnum):
    """What a path is, in the order in which restoring creates them.

    TWIN: another name (a hard link) of the file whose path is its content. OTHER: a socket, a pipe,
    a device or a file that was not read; its content is then its stamp.
    """

    FOLDER = "d"
    FILE = "f"
    LINK = "l"
    TWIN = "h"
    OTHER = "o"


class TreeItem(NamedTuple):
    """What is at a path. `content`: a file's SHA-256, a link's target or a twin's path."""

    kind: PathKind
    mode: int
    size: int = 0
    content: bytes = b""

    @property
    def file_digest(self) -> Digest | None:
        if self.kind is not PathKind.FILE:
            return None
        return Digest(self.content)


class PathChange(NamedTuple):
    """What was at a path and what is there now; None means nothing."""

    path: str
    before: TreeItem | None
    after: TreeItem | None


Tree = Mapping[str, TreeItem]
DIGEST_BYTES = 32


def pack_item(item: TreeItem | None) -> bytes:
    """Pack an item into bytes; empty for None."""
    if item is None:
        return b""
    head = _BODY.pack(item.kind.encode(), item.mode, item.size, len(item.content))
    return head + item.content


def unpack_item(packed: bytes) -> TreeItem | None:
    """Unpack an item that `pack_item` packed."""
    if not packed:
        return None
    kind_letter, mode, size, content_length = _BODY.unpack_from(packed)
    content_end = _BODY.size + content_length
    content = bytes(packed[_BODY.size : content_end])
    return TreeItem(_KINDS[kind_letter], mode, size, content)


_KINDS = {kind.value.encode(): kind for kind in PathKind}


def encode_manifest(packed_items: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Encode every path with its packed item, in pieces."""
    yield _format_header("manifest")
    for path, packed_item in packed_items:
        yield prefix_with_length(encode_path(path)) + prefix_with_length(packed_item)


def decode_manifest(content: bytes) -> dict[str, TreeItem]:
    """Return every path of a manifest with what is there."""
    _, body = _split_header(content, "manifest")
    fields = split_length_fields(body)
    items: dict[str, TreeItem] = {}
    # Paths and packed items take turns.
    for encoded_path, packed_item in zip(fields, fields, strict=True):
        item = unpack_item(packed_item)
        if item is not None:
            items[decode_path(encoded_path)] = item
    return items


def encode_difference(changes: Iterable[PathChange], behind: Digest) -> bytes:
    """Encode changes after the state `behind`. Both together represent the state after them."""
    pieces = [_format_header("difference"), behind.raw]
    for change in changes:
        path = encode_path(change.path)
        before = pack_item(change.before)
        after = pack_item(change.after)
        for piece in (path, before, after):
            pieces.append(prefix_with_length(piece))
    return b"".join(pieces)


def decode_difference(content: bytes) -> tuple[PathChange, ...]:
    """Return the changes of a difference, without the state that they follow."""
    version, body = _split_header(content, "difference")
    # Since version 2, the digest of the state that the changes follow comes first.
    if version > 1:
        body = body[DIGEST_BYTES:]
    fields = split_length_fields(body)
    changes = []
    # A path, the item before and the item after take turns.
    for encoded_path, packed_before, packed_after in zip(fields, fields, fields, strict=True):
        path = decode_path(encoded_path)
        before = unpack_item(packed_before)
        after = unpack_item(packed_after)
        changes.append(PathChange(path, before, after))
    return tuple(changes)


def entries_to_read_first(content: bytes) -> tuple[Digest, ...]:
    """Return the entries to read first, in order, to rebuild the state of an entry."""
    if content.startswith(b"{"):  # Checkpoints in the format of version 1 were written as JSON.
        checkpoint = json.loads(content)
        if checkpoint["checkpoint"] > 1:
            raise _newer_checkpoint_error()
        digests = [Digest.from_hex(checkpoint["manifest"])]
        for difference in checkpoint["differences"]:
            digests.append(Digest.from_hex(difference))
        return tuple(digests)
    if not content.startswith(b"helix difference "):
        return ()
    version, body = _split_header(content, "difference")
    if version == 1:
        return ()
    state_before = Digest(bytes(body[:DIGEST_BYTES]))
    return (state_before,)


def items_set_by_entry(content: bytes) -> Iterator[tuple[str, TreeItem | None]]:
    """Yield the paths that an entry changes in its state, with their new items."""
    if content.startswith(b"helix manifest "):
        yield from decode_manifest(content).items()
    elif content.startswith(b"helix difference "):
        for change in decode_difference(content):
            yield change.path, change.after


def build_tree(contents: Iterable[bytes]) -> dict[str, TreeItem]:
    """Build the state that results from entries, applied in order."""
    state: dict[str, TreeItem] = {}
    for content in contents:
        for path, item in items_set_by_entry(content):
            if item is None:
                state.pop(path, None)
            else:
                state[path] = item
    return state


def compare_trees(before: Tree, after: Tree) -> tuple[PathChange, ...]:
    """Return what differs between two states, in the order of the paths."""
    changes = []
    for path, item_before in before.items():
        item_after = after.get(path)
        if item_after != item_before:
            changes.append(PathChange(path, item_before, item_after))
    for path, item_after in after.items():
        if path not in before:
            changes.append(PathChange(path, None, item_after))
    return tuple(sorted(changes))


def merge_changes_and_find_paths_changed_by_others(
    changes: Iterable[PathChange],
) -> tuple[tuple[PathChange, ...], frozenset[str]]:
    """Merge all changes of a path into one, without changes that cancel each other out.

    A path was changed by others if a change does not begin with what the one before it left.
    """
    merged: dict[str, PathChange] = {}
    changed_by_others = set()
    for change in changes:
        earlier = merged.get(change.path)
        if earlier is None:
            merged[change.path] = change
            continue
        if earlier.after != change.before:
            changed_by_others.add(change.path)
        merged[change.path] = PathChange(change.path, earlier.before, change.after)
    remaining = [change for change in merged.values() if change.before != change.after]
    remaining.sort(key=lambda change: change.path)
    return tuple(remaining), frozenset(changed_by_others)


def without_folders_beside_files(changes: Sequence[PathChange]) -> list[PathChange]:
    """Leave out folders above other changes, because people count files. A folder in which nothing
    else changed stays: it would still be there when all that is listed was undone.
    """
    parents: set[str] = set()
    for change in changes:
        parents.update(_parent_paths(change.path))
    listed_changes: list[PathChange] = []
    for change in changes:
        if change.path not in parents or not is_change_of_folder(change):
            listed_changes.append(change)
    return listed_changes


def _parent_paths(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def is_change_of_folder(change: PathChange) -> bool:
    """Whether there was a folder or nothing, and is a folder or nothing now."""
    for item in (change.before, change.after):
        if item is not None and item.kind is not PathKind.FOLDER:
            return False
    return True


def _format_header(format_name: str) -> bytes:
    return f"helix {format_name} {_VERSIONS[format_name]}\n".encode()


def _split_header(content: bytes, format_name: str) -> tuple[int, memoryview]:
    """Return the version of an entry's format, and what follows its first line."""
    header, _, _ = content[:_LONGEST_HEADER].partition(b"\n")
    words = header.split(b" ")
    if len(words) != 3 or words[:2] != [b"helix", format_name.encode()]:
        raise InvalidInput(
            f"This cache entry is not part of a checkpoint (expected: {format_name})."
        )
    version = int(words[2])
    if version > _VERSIONS[format_name]:
        raise _newer_checkpoint_error()
    body_start = len(header) + 1
    return version, memoryview(content)[body_start:]


def _newer_checkpoint_error() -> WrittenByNewerVersion:
    return WrittenByNewerVersion("This checkpoint was written by a newer version of Helix Desktop.")


def prefix_with_length(field: bytes, length_format: struct.Struct = _LENGTH) -> bytes:
    return length_format.pack(len(field)) + field


def split_length_fields(
    content: memoryview, length_format: struct.Struct = _LENGTH
) -> Iterator[bytes]:
    """Yield the fields of content in which each is preceded by its length."""
    position = 0
    while position < len(content):
        (length,) = length_format.unpack_from(content, position)
        field_start = position + length_format.size
        field_end = field_start + length
        yield bytes(content[field_start:field_end])
        position = field_end


def encode_path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def decode_path(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
