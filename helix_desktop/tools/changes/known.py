"""What is known of the folders between two starts: stamps and digests, in a file beside the stores. Derived: without it, all is read again."""

from __future__ import annotations

import hashlib
import json
import struct
from contextlib import suppress
from pathlib import Path

from helix_desktop import durable
from helix_desktop.engine.digest import Digest
from helix_desktop.tools.changes.coverage import Coverage
from helix_desktop.tools.changes.walk import Known
from helix_desktop.values import dataclass

NAME = "folders.known"
_HEAD = b"helix folders 2\n"
_SIZE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Kept:
    """`chain`: bytes of the checkpoint's manifest, bytes of the differences behind it, and their number."""

    known: Known
    checkpoint: Digest
    chain: tuple[int, int, int]


def write(path: Path, kept: Kept, roots: tuple[str, ...], coverage: Coverage) -> None:
    fields = [_made_for(roots, coverage), json.dumps([kept.checkpoint.hex, *kept.chain]).encode()]
    for folder, names in kept.known.items():
        fields.append(_raw(folder))
        fields.append(b"".join(_sized(_raw(name)) + _sized(record) for name, record in names.items()))
    body = b"".join(map(_sized, fields))
    durable.write(path, _HEAD + hashlib.sha256(body).digest() + body)


def read(path: Path, roots: tuple[str, ...], coverage: Coverage) -> Kept | None:
    """None where there is none, or it is damaged, or made for other folders or rules."""
    with suppress(OSError, ValueError, struct.error, KeyError):
        content = path.read_bytes()
        body = memoryview(content)[len(_HEAD) + 32 :]
        if not content.startswith(_HEAD) or hashlib.sha256(body).digest() != content[len(_HEAD) : len(_HEAD) + 32]:
            return None
        made_for, state, *folders = _fields(body)
        if bytes(made_for) != _made_for(roots, coverage):
            return None
        checkpoint, *chain = json.loads(bytes(state))
        known = {}
        for folder, names in zip(folders[::2], folders[1::2], strict=True):
            parts = _fields(names)
            known[_text(folder)] = {
                _text(name): bytes(record) for name, record in zip(parts[::2], parts[1::2], strict=True)
            }
        return Kept(known, Digest.parse(checkpoint), (chain[0], chain[1], chain[2]))
    return None


def _made_for(roots: tuple[str, ...], coverage: Coverage) -> bytes:
    return json.dumps([roots, coverage.leave_out]).encode()


def _sized(field: bytes) -> bytes:
    return _SIZE.pack(len(field)) + field


def _fields(content: memoryview) -> list[memoryview]:
    at, found = 0, []
    while at < len(content):
        (length,) = _SIZE.unpack_from(content, at)
        at += _SIZE.size + length
        found.append(content[at - length : at])
    return found


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: memoryview) -> str:
    return bytes(raw).decode("utf-8", "surrogateescape")
