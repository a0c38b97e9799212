"""How the cache's keys and values look in LevelDB: the bytes of version 1. FORMATS.md describes them for readers.

| key                          | value                                                     |
|------------------------------|-----------------------------------------------------------|
| `h` SHA-256                  | number of the entry; of one chunk also its blob           |
| `m` number                   | check, then the record: what the entry is                 |
| `b` blob, chunk              | codec byte and up to 1 MiB of content                     |
| `o` blob                     | this blob is being written; its chunks may be orphans   |
| `p` SHA-256                  | pinned by the user                                        |
| `q` SHA-256                  | quarantined: why, as text                                 |
| `t` SHA-256                  | tombstone: forgotten, when                                |
| `n`                          | the highest number of an entry, noted when one is removed |
| `version`                    | the version of all this                                   |

Numbers are eight bytes, big-endian, so that they sort; they only grow, so LevelDB writes in order.
"""

import hashlib
import struct
from enum import IntEnum

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass

VERSION = 1
CHUNK = 1 << 20
VERSION_KEY = b"version"
RAW = 0
ZSTD = 1
_SOURCE_LIMIT = 4000  # In characters. A source is a single line for people to read.

_FIXED = struct.Struct(">BB32sQQQQdHHHI")
_CHECK = 8
_HASH_BYTES = 32
_U64 = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_CHUNK_KEY = struct.Struct(">cQI")
CHUNK_KEY_SIZE = _CHUNK_KEY.size


class EntryState(IntEnum):
    """LIVE: the content exists. COLLECTED: it was removed to free space, but is still described."""

    LIVE = 0
    COLLECTED = 1


_LIVE = EntryState.LIVE  # Faster than looking up the member each time.


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """What the cache knows of one entry. `kept`: bytes on disk. `chunks`: empty for a single chunk.

    `number` is assigned when the entry becomes known, so that followers of the numbers miss
    none. `blob`, under which its chunks are stored, is assigned when the first chunk arrives.
    """

    number: int
    blob: int
    digest: Digest
    size: int
    kept: int
    lines: int
    time: float
    about: EntryOrigin
    chunks: tuple[bytes, ...] = ()
    state: EntryState = EntryState.LIVE

    @property
    def stored_reference(self) -> Stored:
        return Stored(self.digest, self.size, self.lines, self.about.media_type)

    @property
    def count_chunks(self) -> int:
        """Return the number of chunks. An empty entry has one empty chunk."""
        whole_chunks, rest = divmod(self.size, CHUNK)
        if rest or not whole_chunks:
            return whole_chunks + 1
        return whole_chunks

    @property
    def bytes_with_keys(self) -> int:
        chunk_key_bytes = 0
        if self.state is _LIVE:
            chunk_key_bytes = self.count_chunks * _CHUNK_KEY.size
        # Each key begins with a letter.
        hash_key_bytes = 1 + len(self.digest.raw) + len(encode_entry_place(self))
        record_bytes = 1 + _U64.size + len(pack_record(self))
        return self.kept + chunk_key_bytes + hash_key_bytes + record_bytes

    def chunk_digest(self, chunk: int) -> bytes:
        if not self.chunks:
            return self.digest.raw
        return self.chunks[chunk]


def key_of_number(kind: bytes, number: int) -> bytes:
    return kind + _U64.pack(number)


def key_of_chunk(number: int, chunk: int) -> bytes:
    return _CHUNK_KEY.pack(b"b", number, chunk)


def number_in_key(key: bytes) -> int:
    return int(_U64.unpack_from(key, 1)[0])


def encode_entry_place(record: CacheRecord) -> bytes:
    """Encode an entry's number, and its blob if it is a single existing chunk, to save
    a read later.
    """
    if record.size > CHUNK or record.state is not _LIVE:
        return _U64.pack(record.number)
    return _PLACE.pack(record.number, record.blob)


def decode_entry_place(value: bytes) -> tuple[int, int | None]:
    """Return the number, and the blob of an entry of one chunk."""
    if len(value) not in (8, 16):
        raise ValueError("no place of an entry")
    number = number_in_key(b"h" + value)
    if len(value) == 8:
        return number, None
    return number, int(_U64.unpack_from(value, 8)[0])


def pack_record(record: CacheRecord) -> bytes:
    """Return the stored form. Written in plain steps, because every put waits for this."""
    about = record.about
    tool = about.tool[:200].encode("utf-8", "replace")
    source = about.source[:_SOURCE_LIMIT].encode("utf-8", "replace")
    media = about.media_type[:200].encode("utf-8", "replace")
    numbers = _FIXED.pack(
        VERSION, record.state, record.digest.raw, record.blob, record.size, record.kept, record.lines, record.time,
        len(tool), len(source), len(media), len(record.chunks),
    )  # fmt: skip
    payload = numbers + tool + source + media + b"".join(record.chunks)
    digest = hashlib.sha256(_U64.pack(record.number) + payload).digest()
    return digest[:_CHECK] + payload


def unpack_record(number: int, value: bytes) -> CacheRecord:
    """Decode a record. Raises ValueError if it is not what was written."""
    check = value[:_CHECK]
    payload = value[_CHECK:]
    right_digest = hashlib.sha256(_U64.pack(number) + payload).digest()
    if right_digest[:_CHECK] != check:
        raise ValueError("the record does not match its check")
    fields = _FIXED.unpack_from(payload)
    _, state, digest, blob, size, kept, lines, time = fields[:8]
    tool_length, source_length, media_length, chunk_count = fields[8:]
    # Behind the numbers: three texts, whose lengths are among the numbers, and the chunks' hashes.
    tool_start = _FIXED.size
    source_start = tool_start + tool_length
    media_start = source_start + source_length
    chunks_start = media_start + media_length
    tool = payload[tool_start:source_start].decode()
    source = payload[source_start:media_start].decode()
    media_type = payload[media_start:chunks_start].decode()
    chunk_digests: list[bytes] = []
    for chunk in range(chunk_count):
        start = chunks_start + chunk * _HASH_BYTES
        end = start + _HASH_BYTES
        chunk_digests.append(payload[start:end])
    return CacheRecord(
        number,
        blob,
        Digest(digest),
        size,
        kept,
        lines,
        time,
        EntryOrigin(tool, source, media_type),
        tuple(chunk_digests),
        EntryState(state),
    )
