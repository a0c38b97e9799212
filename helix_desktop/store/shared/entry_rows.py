"""An entry of the cache as rows: one with what it is and, where it is small, its content; one more for each chunk of a large one.

The names come from the entry's SHA-256, so whoever knows the one and has the workspace's key finds the other. Whatever an engine
sends is opened by its seal and compared with that SHA-256 before anybody gets it.
"""

import json
from collections.abc import Iterator, Mapping

import zstandard

from helix_desktop.decompression import decompress_zstd_frame
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import CacheCorrupt, WrittenByNewerVersion
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.cache_records import CHUNK, CacheRecord
from helix_desktop.store.shared.row_encryption import RowCipher

VERSION = 1


@dataclass(frozen=True, slots=True)
class DescribedEntry:
    """What the first row says. `content` is there where the entry has one chunk."""

    count: int
    time: float
    about: EntryOrigin
    content: bytes


def entry_row_name(seal: RowCipher, digest: Digest) -> bytes:
    return seal.keyed_row_name("entry", digest.raw)


def entry_row_names(seal: RowCipher, digest: Digest, count: int) -> list[bytes]:
    """Those of all its rows, the first one last: it is put when the others are there."""
    chunks = range(count) if count > 1 else ()
    return [*(_chunk_name(seal, digest, chunk) for chunk in chunks), entry_row_name(seal, digest)]


def _chunk_name(seal: RowCipher, digest: Digest, chunk: int) -> bytes:
    return seal.keyed_row_name("chunk", digest.raw + chunk.to_bytes(4, "big"))


def build_first_row(record: CacheRecord, content: bytes) -> bytes:
    head = {
        "entry": VERSION,
        "size": record.size,
        "count": record.count_chunks,
        "time": record.time,
        "tool": record.about.tool,
        "source": record.about.source,
        "media_type": record.about.media_type,
    }
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(4, "big") + text + (compress_content(content) if record.count_chunks == 1 else b"")


def compress_content(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(content)


def _decompress_content(content: bytes) -> bytes:
    return decompress_zstd_frame(content, CHUNK)


def parse_first_row(digest: Digest, content: bytes) -> DescribedEntry:
    """What a first row says, its content checked against the hash. CacheCorrupt, WrittenByNewerVersion."""
    try:
        end = 4 + int.from_bytes(content[:4], "big")
        head = json.loads(content[4:end].decode("utf-8", "surrogatepass"))
        if head["entry"] > VERSION:
            raise WrittenByNewerVersion(
                "This entry was shared by a newer version of Helix Desktop.",
                remedy="Update Helix Desktop. Nothing was changed.",
            )
        about = EntryOrigin(str(head["tool"]), str(head["source"]), str(head["media_type"]))
        count = int(head["count"])
        whole = _decompress_content(content[end:]) if count == 1 else b""
        described = DescribedEntry(count, float(head["time"]), about, whole)
    except (ValueError, KeyError, TypeError, zstandard.ZstdError) as error:
        raise corrupt_entry_error(digest) from error
    if count == 1 and Digest.of_content(whole) != digest:
        raise corrupt_entry_error(digest)
    return described


def decrypt_chunk_rows(seal: RowCipher, digest: Digest, count: int, rows: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Those of the chunks that are in `rows`, opened; the whole is checked by whoever puts them together."""
    for chunk in range(count):
        row_name = _chunk_name(seal, digest, chunk)
        if row_name not in rows:
            continue
        try:
            yield _decompress_content(seal.decrypt_row(row_name, rows[row_name]))
        except (zstandard.ZstdError, ValueError) as error:
            raise corrupt_entry_error(digest) from error


def corrupt_entry_error(digest: Digest) -> CacheCorrupt:
    return CacheCorrupt(
        f"The entry {digest} in the shared store does not match its hash. It was not used.",
        remedy="To replace it, run `workspace sync --check` on a computer that has an intact copy.",
    )
