"""Saves the known state of the folders in a file beside the stores, for the next start.

It is derived. Without it, all files are read again.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.engine.changes.folder_state import (
    decode_path,
    encode_path,
    prefix_with_length,
    split_length_fields,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.folder_walk import KnownRecords

NAME = "folders.known"
_HEAD = b"helix folders 2\n"
_CHECKSUM_BYTES = 32
_SIZE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class CheckpointChain:
    """What a checkpoint is read from: a full list, and differences that come on top of it."""

    list_bytes: int = 0
    difference_bytes: int = 0
    difference_count: int = 0


@dataclass(frozen=True, slots=True)
class KnownFolderState:
    """What was known of all files at a checkpoint, so that only changed files are read again."""

    known: KnownRecords
    checkpoint: Digest
    chain: CheckpointChain


def write_known_state(
    path: Path, folder_state: KnownFolderState, roots: tuple[str, ...], coverage: CheckpointCoverage
) -> None:
    """Write the state: for which folders and rules it holds, the checkpoint it belongs to, and
    for each folder its entries. A checksum in front tells later whether the file is damaged.
    """
    chain = folder_state.chain
    sizes = [chain.list_bytes, chain.difference_bytes, chain.difference_count]
    encoded_state = json.dumps([folder_state.checkpoint.hex, *sizes]).encode()
    fields = [_describe_roots_and_rules(roots, coverage), encoded_state]
    for folder, names in folder_state.known.items():
        parts: list[bytes] = []
        for name, record in names.items():
            parts += (encode_path(name), record)
        fields += (encode_path(folder), _join_fields(parts))
    body = _join_fields(fields)
    atomic_files.write_file_atomically(path, _HEAD + hashlib.sha256(body).digest() + body)


def read_known_state(
    path: Path, roots: tuple[str, ...], coverage: CheckpointCoverage
) -> KnownFolderState | None:
    """Read the state. None if it is missing, damaged, or made for other folders or rules."""
    with suppress(OSError, ValueError, struct.error, KeyError):
        content = path.read_bytes()
        if not content.startswith(_HEAD):
            return None
        body_start = len(_HEAD) + _CHECKSUM_BYTES
        checksum = content[len(_HEAD) : body_start]
        body = memoryview(content)[body_start:]
        if hashlib.sha256(body).digest() != checksum:
            return None
        roots_and_rules, encoded_state, *folders = split_length_fields(body, _SIZE)
        if roots_and_rules != _describe_roots_and_rules(roots, coverage):
            return None
        checkpoint, list_bytes, difference_bytes, difference_count = json.loads(encoded_state)
        chain = CheckpointChain(list_bytes, difference_bytes, difference_count)
        # Each folder's path is followed by its entries, and there each name by its record.
        known = {}
        for folder, encoded_entries in _decode_pairs(folders):
            fields = list(split_length_fields(memoryview(encoded_entries), _SIZE))
            known[folder] = dict(_decode_pairs(fields))
        return KnownFolderState(known, Digest.from_hex(checkpoint), chain)
    return None


def _decode_pairs(fields: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield each path with the field that follows it."""
    for path, value in zip(fields[::2], fields[1::2], strict=True):
        yield decode_path(path), value


def _describe_roots_and_rules(roots: tuple[str, ...], coverage: CheckpointCoverage) -> bytes:
    return json.dumps([roots, coverage.leave_out]).encode()


def _join_fields(fields: Iterable[bytes]) -> bytes:
    return b"".join(prefix_with_length(field, _SIZE) for field in fields)
