"""A folder's state at a moment: each path and what is there. Also how two states differ, as bytes for the cache.

Paths are relative, with "/" between names, behind the number of their root: `0/src/main.c`. Names of any bytes are held as Python
holds file names (surrogateescape). `store/FORMATS.md` describes the stored forms.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from helix_desktop.engine.digest import Digest
from helix_desktop.errors import NewerVersion, WrongUse

LONGEST_CHAIN = 2_000  # differences behind a manifest, before a new one is written
_VERSIONS = {"manifest": 1, "difference": 2}
_BODY = struct.Struct("<cIQH")  # kind, mode, size, length of the content that follows
_LENGTH = struct.Struct("<H")


class Kind(StrEnum):
    """In the order in which they can be made. TWIN: another name (a hard link) of the file whose path is its content. OTHER: a socket, a pipe, a device,
    or a file that was not read: then its content is its stamp.
    """

    FOLDER = "d"
    FILE = "f"
    LINK = "l"
    TWIN = "h"
    OTHER = "o"


class Item(NamedTuple):
    """`content`: the SHA-256 of a file, the target of a link, the other path of a twin; else nothing. `size`: of a file."""

    kind: Kind
    mode: int
    size: int = 0
    content: bytes = b""

    @property
    def digest(self) -> Digest | None:
        return Digest(self.content) if self.kind is Kind.FILE else None


class Change(NamedTuple):
    """What was at a path and what is there now; None: nothing."""

    path: str
    before: Item | None
    after: Item | None


Tree = Mapping[str, Item]


def pack(item: Item | None) -> bytes:
    """An item as bytes; nothing for None."""
    if item is None:
        return b""
    return _BODY.pack(item.kind.encode(), item.mode, item.size, len(item.content)) + item.content


def unpack(body: bytes) -> Item | None:
    if not body:
        return None
    kind, mode, size, length = _BODY.unpack_from(body)
    return Item(_KINDS[kind], mode, size, bytes(body[_BODY.size : _BODY.size + length]))


_KINDS = {kind.value.encode(): kind for kind in Kind}


def write_manifest(bodies: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Every path with its packed item, in pieces."""
    yield _head("manifest")
    for path, body in bodies:
        yield _sized(_raw(path)) + _sized(body)


def read_manifest(content: bytes) -> dict[str, Item]:
    fields = _fields(_headed(content, "manifest")[1])
    found = {}
    for path, body in zip(fields, fields, strict=True):
        item = unpack(body)
        if item is not None:
            found[_path(path)] = item
    return found


def write_difference(changes: Iterable[Change], behind: Digest) -> bytes:
    """`behind`: the state before the changes. With it, the difference is also the state they lead to."""
    return (_head("difference") + behind.raw) + b"".join(
        _sized(_raw(path)) + _sized(pack(before)) + _sized(pack(after)) for path, before, after in changes
    )


def read_difference(content: bytes) -> tuple[Change, ...]:
    version, body = _headed(content, "difference")
    fields = _fields(body[32:] if version > 1 else body)
    return tuple(
        Change(_path(path), unpack(before), unpack(after))
        for path, before, after in zip(fields, fields, fields, strict=True)
    )


def behind(content: bytes) -> tuple[Digest, ...]:
    """What has to be read for the state that an entry stands for, in order, before the entry itself."""
    if content.startswith(b"{"):  # a checkpoint of version 1
        body = json.loads(content)
        if body["checkpoint"] > 1:
            raise _newer()
        return tuple(map(Digest.parse, (body["manifest"], *body["differences"])))
    if not content.startswith(b"helix difference "):
        return ()
    version, left = _headed(content, "difference")
    return (Digest(bytes(left[:32])),) if version > 1 else ()


def puts(content: bytes) -> Iterator[tuple[str, Item | None]]:
    """What an entry that leads to a state puts at which path."""
    if content.startswith(b"helix manifest "):
        yield from read_manifest(content).items()
    elif content.startswith(b"helix difference "):
        yield from ((path, after) for path, _, after in read_difference(content))


def built(contents: Iterable[bytes]) -> dict[str, Item]:
    """The state that entries lead to, in their order."""
    state: dict[str, Item] = {}
    for path, item in (each for content in contents for each in puts(content)):
        if item is None:
            state.pop(path, None)
        else:
            state[path] = item
    return state


def compared(before: Tree, after: Tree) -> tuple[Change, ...]:
    """What has to happen to one state for the other, by path."""
    gone = [Change(path, item, after.get(path)) for path, item in before.items() if after.get(path) != item]
    come = [Change(path, None, item) for path, item in after.items() if path not in before]
    return tuple(sorted(gone + come))


def joined(changes: Iterable[Change]) -> tuple[tuple[Change, ...], frozenset[str]]:
    """Changes in the order they happened as one change for each path, without what came to nothing; and the paths where somebody
    else changed something in between.
    """
    whole: dict[str, Change] = {}
    broken = set()
    for path, before, after in changes:
        held = whole.get(path)
        if held is not None and held.after != before:
            broken.add(path)
        whole[path] = Change(path, before if held is None else held.before, after)
    left = (change for change in whole.values() if change.before != change.after)
    return tuple(sorted(left, key=lambda change: change.path)), frozenset(broken)


def files_of(changes: Sequence[Change]) -> list[Change]:
    """The changes a person counts: a folder is one only where nothing in it changed."""
    holding = {above for change in changes for above in _above(change.path)}
    return [change for change in changes if not (_is_folder(change) and change.path in holding)]


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _is_folder(change: Change) -> bool:
    return all(item is None or item.kind is Kind.FOLDER for item in (change.before, change.after))


# --- bytes -----------------------------------------------------------------------------------------------------------


def _head(what: str) -> bytes:
    return f"helix {what} {_VERSIONS[what]}\n".encode()


def _headed(content: bytes, what: str) -> tuple[int, memoryview]:
    """The version, and what follows the head."""
    head, _, _ = content[:40].partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[:2] != [b"helix", what.encode()]:
        raise WrongUse(f"This cache entry is not a checkpoint {what}.")
    if int(words[2]) > _VERSIONS[what]:
        raise _newer()
    return int(words[2]), memoryview(content)[len(head) + 1 :]


def _newer() -> NewerVersion:
    return NewerVersion(
        "This checkpoint was written by a newer version of Helix Desktop.", remedy="Update the program."
    )


def _sized(field: bytes) -> bytes:
    return _LENGTH.pack(len(field)) + field


def _fields(content: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size + length
        yield bytes(content[at - length : at])


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _path(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
