"""Reads the files of a LevelDB that LevelDB itself refuses to read, without LevelDB.

LevelDB gives up a whole block for one wrong byte, and a whole table for one in the table's
list of blocks. But the cache's keys have few shapes, and its values prove themselves by
SHA-256. So everything that looks like an entry is returned here, and the caller keeps what
proves right. LevelDB's `doc/table_format.md` and `doc/log_format.md` describe the files.
"""

import functools
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass

_LOG_BLOCK = 32 << 10
_LOG_HEADER = struct.Struct("<IHB")  # Checksum, length, and which part of a batch this is.
_BATCH_HEADER = struct.Struct("<QI")  # The number of the first write, and how many there are.
_KIND_OFFSET = 6  # In a log's header, which part this is stands behind checksum and length.
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
_DELETION = 0
_PUT = 1
_TRAILER = 5  # Behind each block of a table: the compression's number and a checksum.
_FOOTER = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_INTERNAL = 8  # Behind each key in a table: the number of the write, and whether it deletes.
_MOST_VARINT_BYTES = 5
_HIGHEST_SEQUENCE = (1 << 56) - 1

# Lengths of the cache's keys, by their first letter. `cache_records` describes them.
_KEY_LENGTHS = {b"b": 13, b"m": 9, b"o": 9, b"h": 33, b"p": 33, b"q": 33, b"t": 33}
_KEYS_BY_LENGTH = {13: b"b", 9: b"mo", 33: b"hpqt"}


def _build_key_pattern(before: bytes, varint: bytes, extra_length: int) -> re.Pattern[bytes]:
    """Return a pattern for where a key begins: `before`, its length, `varint`, its letter."""
    shapes: list[bytes] = []
    for length, letters in _KEYS_BY_LENGTH.items():
        length_byte = bytes((length + extra_length,))
        one_of_letters = b"[" + letters + b"]"
        shapes.append(re.escape(length_byte) + varint + one_of_letters)
    any_shape = b"(?:" + b"|".join(shapes) + b")"
    return re.compile(before + any_shape, re.DOTALL)


_PUT_IN_BATCH = _build_key_pattern(b"\x01", b"", 0)
_WHOLE_KEY_IN_TABLE = _build_key_pattern(b"\x00", b"[\x80-\xff]{0,4}[\x00-\x7f]", _INTERNAL)


@dataclass(frozen=True, slots=True)
class SalvagedEntry:
    """A key and its value as found. `sequence`: the number of the write; a higher one is newer."""

    key: bytes
    value: bytes
    sequence: int = 0


# --- Tables


@dataclass(frozen=True, slots=True)
class _TableBlock:
    """Where a block of a table begins, and where it ends."""

    start: int
    stop: int


def read_table_entries(content: bytes) -> Iterator[SalvagedEntry]:
    """Yield what looks like an entry in a table's file, in no particular order."""
    blocks = _find_table_blocks(content)
    if not blocks:
        blocks = [_TableBlock(0, len(content))]
    known_identities: set[tuple[bytes, int]] = set()
    for block in blocks:
        for entry in _read_entries_between(content, block.start, block.stop):
            # Without its list of blocks, a table's list itself is read last. It has the last key
            # of each block, or a made-up one with the highest of all numbers.
            identity = (entry.key, entry.sequence)
            if identity not in known_identities and entry.sequence < _HIGHEST_SEQUENCE:
                known_identities.add(identity)
                yield entry


def _find_table_blocks(content: bytes) -> list[_TableBlock]:
    """Return where the blocks of data are, or nothing if the table's list of them is damaged."""
    footer = content[-_FOOTER:]
    if len(content) < _FOOTER or not footer.endswith(_MAGIC):
        return []
    try:
        # The footer says where a block of no interest here is, and then where the list is.
        _, position = _read_handle(footer, 0)
        block_of_list, _ = _read_handle(footer, position)
        listed_blocks = _read_listed_blocks(content[block_of_list.start : block_of_list.stop])
    except (IndexError, struct.error):
        return []
    # The blocks lie one behind the other, so a wrong byte in the list leaves a gap.
    expected_start = 0
    for block in listed_blocks:
        if block.start != expected_start or block.stop > len(content):
            return []
        expected_start = block.stop + _TRAILER
    return listed_blocks


def _read_listed_blocks(block_list: bytes) -> list[_TableBlock]:
    """Decode a table's list of its blocks: an entry for each block, with a key, which is
    skipped, and where the block is.

    Behind the entries are positions that are not needed, and how many these are. Each of these
    numbers has four bytes.
    """
    blocks: list[_TableBlock] = []
    (position_count,) = struct.unpack_from("<I", block_list, len(block_list) - 4)
    end_of_entries = len(block_list) - 4 - 4 * position_count
    position = 0
    while position < end_of_entries:
        _, position = _read_varint(block_list, position)
        unshared_length, position = _read_varint(block_list, position)
        value_length, position = _read_varint(block_list, position)
        position += unshared_length
        block, _ = _read_handle(block_list, position)
        blocks.append(block)
        position += value_length
    return blocks


def _read_handle(content: bytes, position: int) -> tuple[_TableBlock, int]:
    """Return where a block is, which LevelDB calls its handle, and the position behind that."""
    start, position = _read_varint(content, position)
    size, position = _read_varint(content, position)
    return _TableBlock(start, start + size), position


def _read_entries_between(content: bytes, start: int, stop: int) -> Iterator[SalvagedEntry]:
    """Yield runs of entries. Each begins with a whole key; further keys share bytes with it."""
    key_match = _WHOLE_KEY_IN_TABLE.search(content, start, stop)
    while key_match is not None:
        position = key_match.start()
        entry = _read_table_entry(content, position, stop, b"")
        while entry is not None:
            internal_key, value, position = entry
            number = int.from_bytes(internal_key[-_INTERNAL:], "little")
            if number & 0xFF == _PUT:
                yield SalvagedEntry(internal_key[:-_INTERNAL], value, number >> 8)
            entry = _read_table_entry(content, position, stop, internal_key)
        # Where nothing could be read, go on behind the letter that looked like a key.
        next_position = max(position, key_match.start() + 1)
        key_match = _WHOLE_KEY_IN_TABLE.search(content, next_position, stop)


def _read_table_entry(
    content: bytes, position: int, stop: int, last_key: bytes
) -> tuple[bytes, bytes, int] | None:
    """Return an internal key, its value and the position behind it, or None if none is there."""
    try:
        shared_length, position = _read_varint(content, position)
        unshared_length, position = _read_varint(content, position)
        value_length, position = _read_varint(content, position)
    except IndexError:
        return None
    end_of_key = position + unshared_length
    end = end_of_key + value_length
    internal_key = last_key[:shared_length] + content[position:end_of_key]
    is_complete = len(internal_key) == shared_length + unshared_length
    if end > stop or not is_complete or not _is_known_shape(internal_key[:-_INTERNAL]):
        return None
    if internal_key[-_INTERNAL] not in (_DELETION, _PUT):
        return None
    return internal_key, content[end_of_key:end], end


def _is_known_shape(key: bytes) -> bool:
    return _KEY_LENGTHS.get(key[:1]) == len(key) or key in (b"n", b"version")


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Return the number, and the position behind it. Raises IndexError where there is none."""
    number = 0
    for index in range(_MOST_VARINT_BYTES):
        byte = content[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    raise IndexError("no number is that long")


# --- Logs


@dataclass(frozen=True, slots=True)
class SalvagedBatch:
    """The writes of one batch in a log, in order; None deletes.

    `is_intact`: its checksums are right, so this is all of it, as it was written.
    """

    writes: tuple[tuple[bytes, bytes | None], ...]
    is_intact: bool


@dataclass(frozen=True, slots=True)
class _LogPart:
    kind: int
    content: bytes
    is_intact: bool


def read_log_batches(content: bytes) -> Iterator[SalvagedBatch]:
    """Yield the batches of a log, in order, and what is readable of damaged ones."""
    open_batch: list[_LogPart] = []
    for part in _read_log_parts(content):
        begins = part.kind in (_FULL, _FIRST)
        if begins and open_batch:
            yield _decode_parts(open_batch, is_complete=False)
            open_batch = []
        open_batch.append(part)
        if part.kind in (_FULL, _LAST):
            yield _decode_parts(open_batch, is_complete=open_batch[0].kind in (_FULL, _FIRST))
            open_batch = []
    if open_batch:
        yield _decode_parts(open_batch, is_complete=False)


def _decode_parts(parts: Sequence[_LogPart], *, is_complete: bool) -> SalvagedBatch:
    """Decode the parts of one batch. An intact batch gives all its writes. Of a damaged one,
    whatever looks like a write that stores something is taken.
    """
    content = b"".join(part.content for part in parts)
    if is_complete and all(part.is_intact for part in parts):
        writes = _read_all_writes(content)
        if writes is not None:
            return SalvagedBatch(writes, is_intact=True)
    puts: list[tuple[bytes, bytes | None]] = []
    for put_match in _PUT_IN_BATCH.finditer(content):
        write = _read_batch_write(content, put_match.start())
        if write is not None:
            puts.append((write[0], write[1]))
    return SalvagedBatch(tuple(puts), is_intact=False)


def _read_all_writes(content: bytes) -> tuple[tuple[bytes, bytes | None], ...] | None:
    """Return the writes of a batch, or None if it does not have as many as it says."""
    if len(content) < _BATCH_HEADER.size:
        return None
    _, count = _BATCH_HEADER.unpack_from(content)
    position = _BATCH_HEADER.size
    writes = []
    while position < len(content):
        write = _read_batch_write(content, position)
        if write is None:
            return None
        key, value, position = write
        writes.append((key, value))
    if len(writes) != count:
        return None
    return tuple(writes)


def _read_batch_write(content: bytes, position: int) -> tuple[bytes, bytes | None, int] | None:
    """Read one write of a batch: its kind, then its key and, unless it is a deletion, its value,
    each after its length. Return key, value (None: delete) and where the next write begins, or
    None if this is no whole write.
    """
    try:
        kind = content[position]
        key_length, key_start = _read_varint(content, position + 1)
        key_end = key_start + key_length
        key = content[key_start:key_end]
        if len(key) != key_length or kind not in (_DELETION, _PUT):
            return None
        if kind == _DELETION:
            return key, None, key_end
        value_length, value_start = _read_varint(content, key_end)
    except IndexError:
        return None
    value_end = value_start + value_length
    value = content[value_start:value_end]
    if len(value) != value_length:
        return None
    return key, value, value_end


def _read_log_parts(content: bytes) -> Iterator[_LogPart]:
    """Yield the parts of a log, in order. What is between two intact parts becomes one damaged
    part. No part crosses the end of a block, so each block is read by itself.
    """
    for block_start in range(0, len(content), _LOG_BLOCK):
        stop = min(block_start + _LOG_BLOCK, len(content))
        position = block_start
        while position + _LOG_HEADER.size <= stop:
            part = _read_intact_part(content, position, stop)
            if part is not None:
                yield part
                position += _LOG_HEADER.size + len(part.content)
                continue
            # The length may be wrong, too, so look for where the next intact part begins.
            next_position = _find_intact_part(content, position + 1, stop)
            damaged_bytes = content[position + _LOG_HEADER.size : next_position]
            if damaged_bytes.strip(b"\0"):
                kind = content[position + _KIND_OFFSET]
                if not _FULL <= kind <= _LAST:
                    kind = _FULL
                yield _LogPart(kind, damaged_bytes, is_intact=False)
            position = next_position


def _read_intact_part(content: bytes, position: int, stop: int) -> _LogPart | None:
    checksum, length, kind = _LOG_HEADER.unpack_from(content, position)
    start = position + _LOG_HEADER.size
    if not _FULL <= kind <= _LAST or start + length > stop:
        return None
    # The checksum is of the part and of the byte before it, which says what part it is.
    if _masked_crc32c(content[start - 1 : start + length]) != checksum:
        return None
    return _LogPart(kind, content[start : start + length], is_intact=True)


def _find_intact_part(content: bytes, position: int, stop: int) -> int:
    """Return where the next intact part of a block begins, or the block's end if there is none."""
    for part_start in range(position, stop - _LOG_HEADER.size + 1):
        # Most bytes are no kind of a part, and looking at one byte is fast.
        if not _FULL <= content[part_start + _KIND_OFFSET] <= _LAST:
            continue
        if _read_intact_part(content, part_start, stop) is not None:
            return part_start
    return stop


@functools.cache
def _crc32c_table() -> tuple[int, ...]:
    """Return the table with which the checksum CRC-32C is computed byte by byte."""
    table: list[int] = []
    for number in range(256):
        value = number
        for _ in range(8):
            is_lowest_bit_set = bool(value & 1)
            value >>= 1
            if is_lowest_bit_set:
                value ^= 0x82F63B78
        table.append(value)
    return tuple(table)


def _masked_crc32c(content: bytes) -> int:
    """Return the checksum as LevelDB stores it."""
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


# --- What LevelDB would pass over without a word


def has_silent_damage(folder: Path) -> bool:
    """Whether LevelDB would silently stop reading one of its logs before the end.

    LevelDB takes zeros, and a part that is longer than its file, for the torn end of a log. In
    its list of tables (the manifest), too, and then it deletes the tables that are not listed.
    """
    for path in (*folder.glob("MANIFEST-*"), *folder.glob("*.log")):
        is_manifest = path.suffix != ".log"
        if is_manifest and not _is_current_manifest(path):
            continue
        content = path.read_bytes()
        chain = _follow_log_parts(content)
        if chain.end < len(content) and (is_manifest or _has_lost_batch(content, chain)):
            return True
    return False


def _is_current_manifest(path: Path) -> bool:
    try:
        return path.with_name("CURRENT").read_bytes().strip() == path.name.encode()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _LogChain:
    """`end`: where a log's chain of parts ends. `open_batch`: parts of a batch without its end."""

    end: int
    open_batch: bytes


def _follow_log_parts(content: bytes) -> _LogChain:
    """Follow the parts by their lengths alone, which is quick enough for every opening."""
    position = 0
    open_parts: list[bytes] = []
    while position < len(content):
        room = _LOG_BLOCK - position % _LOG_BLOCK
        if room < _LOG_HEADER.size:
            position = min(position + room, len(content))
            continue
        if position + _LOG_HEADER.size > len(content):
            break
        _, length, kind = _LOG_HEADER.unpack_from(content, position)
        size = _LOG_HEADER.size + length
        if not _FULL <= kind <= _LAST or size > room or position + size > len(content):
            break
        if kind in (_FULL, _FIRST):
            open_parts.clear()
        open_parts.append(content[position + _LOG_HEADER.size : position + size])
        if kind in (_FULL, _LAST):
            open_parts.clear()
        position += size
    return _LogChain(position, b"".join(open_parts))


def _has_lost_batch(content: bytes, chain: _LogChain) -> bool:
    """Whether a whole batch, or zeros in the place of one, lie where LevelDB would stop.

    A batch that was being written when the computer stopped is no damage: nobody was told
    that it is stored.
    """
    rest = content[chain.end :]
    if not rest.strip(b"\0"):
        return True
    behind_header = rest[_LOG_HEADER.size :]
    if _read_all_writes(behind_header) or _read_all_writes(chain.open_batch + behind_header):
        return True
    # Parts never cross the border of a block.
    search_from = chain.end + 1
    while search_from < len(content):
        block_end = search_from - search_from % _LOG_BLOCK + _LOG_BLOCK
        stop = min(block_end, len(content))
        if _find_intact_part(content, search_from, stop) < stop:
            return True
        search_from = stop
    return False
