"""Decompresses the body of an HTTP message from an untrusted peer, with limits on
output, memory and work.

A body of 58 KB can expand to gigabytes, and libraries decompress a piece as a whole
before anybody can check its size. Each coding here passes on at most 256 KiB at a time
and counts it, so no layer of nested codings can produce more than the limit. The work
is bounded too, and may be done in a thread. Everything that reads compressed bytes from
outside uses this module.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol, cast

import zstandard

OFFERED_CODINGS = "gzip, deflate, zstd"  # Sent as Accept-Encoding: what we can decompress.
MOST_CODINGS = 4
MOST_MEMBERS = 1_000  # The maximum number of gzip members in one body.
MOST_ARCHIVE_MEMBERS = 100
# The largest single read, in bytes. The directory of a zip archive is read in one piece.
_LONGEST_ARCHIVE_READ = 4 << 20
_OUTPUT_PIECE_BYTES = 64 << 10
_INPUT_PIECE_BYTES = 16 << 10
_ZSTD_BLOCK_BYTES = 128 << 10  # The most that a block of zstd stands for.
_ZSTD_WINDOW_BYTES = 8 << 20  # The window size that RFC 8878 asks every zstd decoder to support.
_SPARE_BYTES = 64 << 10  # Compressed data may exceed the limit by this many bytes.

Sink = Callable[[bytes], object]


class UnreadableCoding(ValueError):
    """The bytes are damaged, or have a coding that is not supported."""


class DecodedTooLarge(ValueError):
    """The output exceeds the limit. `decoded` is the part of the last piece that is within it."""

    def __init__(self, limit_bytes: int, decoded: bytes | bytearray = b"") -> None:
        super().__init__(f"it is larger than {limit_bytes:,} bytes when it is decompressed")
        self.decoded = decoded


class BodyDecompressor:
    """Decodes a body piece by piece, as its header `content_encoding` says."""

    def __init__(self, content_encoding: str, limit_bytes: int) -> None:
        names: list[str] = []
        for word in content_encoding.split(","):
            name = word.strip().lower()
            if name not in ("", "identity"):
                names.append(name)
        if len(names) > MOST_CODINGS:
            raise UnreadableCoding(
                f"it is compressed {len(names)} times, and {MOST_CODINGS} times are read"
            )
        self._limit_bytes = limit_bytes
        self._decoded = bytearray()
        self._decoders: list[_Decoder] = []
        last_step = _LimitedSink(self._append_decoded, limit_bytes)
        self._first_step: Sink = last_step.pass_on_or_raise_at_limit
        for name in names:  # The coding that was applied last is decoded first.
            decoder = _build_decoder(name, self._first_step)
            self._decoders.append(decoder)
            step = _LimitedSink(decoder.decode_piece, limit_bytes + _SPARE_BYTES)
            self._first_step = step.pass_on_or_raise_at_limit

    def decode_piece(self, data: bytes | bytearray) -> bytes:
        """Decompresses the next piece. Raises DecodedTooLarge past the limit,
        UnreadableCoding for damaged data.
        """
        return bytes(self.decode_large_piece(data))

    def decode_large_piece(self, data: bytes | bytearray) -> bytearray:
        """Like `decode_piece`, but without a copy, because copying 64 MB would block
        all other threads.
        """
        try:
            for start in range(0, len(data), _INPUT_PIECE_BYTES):
                self._first_step(bytes(data[start : start + _INPUT_PIECE_BYTES]))
        except DecodedTooLarge:
            raise DecodedTooLarge(self._limit_bytes, self._pop_decoded()) from None
        except (zlib.error, zstandard.ZstdError, EOFError) as error:
            raise UnreadableCoding(f"its compression is damaged: {error}") from None
        return self._pop_decoded()

    def require_end(self) -> None:
        """Raises UnreadableCoding if the body ends before its compression does. Whoever takes the
        text for whole calls this, because the end of a connection says nothing about it.
        """
        for decoder in self._decoders:
            if not decoder.is_complete():
                raise UnreadableCoding("its compressed data ends too early, so a part is missing")

    def _append_decoded(self, data: bytes) -> None:
        self._decoded += data

    def _pop_decoded(self) -> bytearray:
        decoded = self._decoded
        self._decoded = bytearray()
        return decoded


def decompress_body(
    content: bytes | bytearray, content_encoding: str, limit_bytes: int, *, may_be_cut: bool = False
) -> bytearray:
    """Decompresses a whole body. Raises DecodedTooLarge or UnreadableCoding.

    `may_be_cut`: of a body that ends too early, what is there is returned.
    """
    body = BodyDecompressor(content_encoding, limit_bytes)
    decoded = body.decode_large_piece(content)
    if not may_be_cut:
        body.require_end()
    return decoded


def decompress_zstd_frame(content: bytes, limit_bytes: int) -> bytes:
    """Decompresses one whole zstd frame. Its declared size is checked before memory is allocated.
    Raises ZstdError if it is damaged or cut off, or if it says its size and anything follows it.
    """
    if zstandard.frame_content_size(content) > limit_bytes:
        raise DecodedTooLarge(limit_bytes)
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompress(
        content, max_output_size=limit_bytes, allow_extra_data=False
    )


@contextmanager
def open_foreign_archive(
    source: Path | io.BytesIO, most_members: int = MOST_ARCHIVE_MEMBERS
) -> Iterator[zipfile.ZipFile]:
    """Opens a ZIP file from outside. BadZipFile if it is none, has too many members, or
    has a member that is a duplicate, encrypted, or compressed by a method whose output
    cannot be limited. The same if a member is damaged, once it is read. A member yields no
    more than its declared size.
    """
    raw: io.BytesIO | io.FileIO
    if isinstance(source, io.BytesIO):
        raw = source
    else:
        raw = io.FileIO(source)
    with _ArchiveFile(cast("io.RawIOBase", raw)) as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > most_members:
            raise zipfile.BadZipFile(f"it has more than {most_members} members")
        for member in members:
            is_read = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            is_encrypted = bool(member.flag_bits & 1)
            is_duplicate = archive.getinfo(member.filename) is not member
            if not is_read or is_encrypted or is_duplicate:
                raise zipfile.BadZipFile(
                    f"its member {member.filename[:40]!r} is not one that is read"
                )
        try:
            yield archive
        except (zlib.error, EOFError) as error:
            raise zipfile.BadZipFile(f"its compression is damaged: {error}") from error


def read_archive_member(archive: zipfile.ZipFile, name: str, limit_bytes: int) -> bytes:
    """Reads a small member as a whole. BadZipFile if it is too large: it yields no more than the
    size that it declares, so nothing of it is read.
    """
    if archive.getinfo(name).file_size > limit_bytes:
        raise zipfile.BadZipFile(f"its member {name} is larger than {limit_bytes:,} bytes")
    with archive.open(name) as member:
        return member.read(limit_bytes + 1)


class _ArchiveFile(io.BufferedReader):
    """The file of an archive. A single read is limited to what a legitimate archive needs."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LONGEST_ARCHIVE_READ:
            raise zipfile.BadZipFile("its directory is too large")
        return super().read(size)


class _Decoder(Protocol):
    """Decodes one coding, and passes what it decodes on to its sink."""

    def decode_piece(self, data: bytes, /) -> object: ...

    def is_complete(self) -> bool:
        """Whether nothing has come, or all that has come is decoded up to the end of its data."""
        ...


def _build_decoder(name: str, sink: Sink) -> _Decoder:
    match name:
        case "gzip" | "x-gzip":
            return _Gzip(sink)
        case "deflate":
            return _Deflate(sink)
        case "zstd":
            return _Zstd(sink)
    raise UnreadableCoding(f"its coding {name[:40]!r} is not read")


class _LimitedSink:
    """Passes decoded bytes on. At the limit it raises, which stops the decoding."""

    def __init__(self, sink: Sink, limit_bytes: int) -> None:
        self._sink = sink
        self._limit_bytes = limit_bytes
        self._bytes_left = limit_bytes

    def pass_on_or_raise_at_limit(self, data: bytes) -> None:
        data_within_limit = data[: self._bytes_left]
        self._bytes_left -= len(data)
        self._sink(data_within_limit)
        if self._bytes_left < 0:
            self._bytes_left = 0
            raise DecodedTooLarge(self._limit_bytes)


class _Zstd:
    """Decodes the frames of a zstd stream in turn."""

    def __init__(self, sink: Sink) -> None:
        self._target = _ZstdTarget(sink)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        # Room for the rest of one block and for the next, which the last byte may complete.
        self._writer = decompressor.stream_writer(
            cast("IO[bytes]", self._target), write_size=2 * _ZSTD_BLOCK_BYTES
        )

    def decode_piece(self, data: bytes) -> None:
        # The writer calls the library as long as there is input, even if decoded bytes are left in
        # the library then. Before the last byte, it passes on what is left of all before it.
        self._writer.write(data[:-1])
        self._writer.write(data[-1:])

    def is_complete(self) -> bool:
        """The library does not say whether a frame has ended. A frame that is written now is decoded
        to its own content only behind a complete one. Nothing can be decoded after this.
        """
        decoded_test_frame = bytearray()
        self._target.sink = decoded_test_frame.extend
        try:
            # A whole frame in one piece would be decoded even behind half a header of another.
            for byte in _TEST_FRAME:
                self._writer.write(bytes([byte]))
        except zstandard.ZstdError:
            return False
        return decoded_test_frame == _TEST_CONTENT


_TEST_CONTENT = b"the end of the frames before"
_TEST_FRAME = zstandard.ZstdCompressor().compress(_TEST_CONTENT)


class _ZstdTarget:
    """A sink in the form zstandard writes to."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, data: bytes) -> int:
        self.sink(bytes(data))
        return len(data)


class _Gzip:
    """Decodes the members of a gzip stream in turn and ignores padding behind the last one."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._members = 1
        self._decompressor = zlib.decompressobj(wbits=31)
        self._has_begun = False

    def is_complete(self) -> bool:
        return self._decompressor.eof or not self._has_begun

    def decode_piece(self, data: bytes) -> None:
        while data:
            self._has_begun = True
            if self._decompressor.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._members += 1
                if self._members > MOST_MEMBERS:
                    raise UnreadableCoding(f"it has more than {MOST_MEMBERS} members of gzip")
                self._decompressor = zlib.decompressobj(wbits=31)
            _inflate_fully(self._decompressor, data, self._sink)
            data = self._decompressor.unused_data


class _Deflate:
    """Decodes deflate with the zlib header, as specified, or without, as some servers do."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._header = b""
        self._decompressor: zlib._Decompress | None = None

    def is_complete(self) -> bool:
        if self._decompressor is None:
            return not self._header
        return self._decompressor.eof

    def decode_piece(self, data: bytes) -> None:
        if self._decompressor is None:
            self._header += data
            if len(self._header) < 2:
                return
            data = self._header
            first_byte = data[0]
            second_byte = data[1]
            # The zlib header (RFC 1950): method 8, and a check that makes it divisible by 31.
            has_zlib_header = first_byte & 15 == 8 and (first_byte << 8 | second_byte) % 31 == 0
            window_bits = -15
            if has_zlib_header:
                window_bits = 15
            self._decompressor = zlib.decompressobj(wbits=window_bits)
        if not self._decompressor.eof:
            _inflate_fully(self._decompressor, data, self._sink)


def _inflate_fully(decompressor: "zlib._Decompress", data: bytes, sink: Sink) -> None:
    while data and not decompressor.eof:
        sink(decompressor.decompress(data, _OUTPUT_PIECE_BYTES))
        data = decompressor.unconsumed_tail
    while not decompressor.eof:
        held_back = decompressor.decompress(b"", _OUTPUT_PIECE_BYTES)
        if not held_back:
            return
        sink(held_back)
