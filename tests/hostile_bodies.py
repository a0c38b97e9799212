"""Hostile bodies of messages, from a seed: every coding nested in every other, bombs,
damage, and names of codings that mislead.

python -m tests.faults.bodies [--bodies 1000] [--seed 1]
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Mapping

import zstandard

from helix_desktop.fast_dataclass import dataclass


def _raw_deflate(data: bytes) -> bytes:
    squeezed = zlib.compressobj(9, wbits=-15)
    return squeezed.compress(data) + squeezed.flush()


CODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "deflate": lambda data: zlib.compress(data, 6),
    "Deflate": _raw_deflate,
    "zstd": zstandard.ZstdCompressor(level=3).compress,
    "ZSTD": zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, compression_level=3)
    ).compress,
    "identity": lambda data: data,
}
_EMPTY_GZIP = gzip.compress(b"", mtime=0)
_EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"  # of deflate: five bytes that stand for none
_SIZES = (0, 1, 100, 70_000, 3_000_000, 30_000_000, 60_000_000)


@dataclass(frozen=True, slots=True)
class HostileBody:
    """`plain`: what it stands for where it is honest, else None."""

    content: bytes
    encoding: str
    plain: bytes | None


def hostile_body(seed: int) -> HostileBody:
    chance = random.Random(seed)
    plain = _plain(chance)
    content = plain
    names = list[str]()
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4))):
        name = chance.choice(tuple(CODINGS))
        content, names = CODINGS[name](content), [*names, name]
    honest: bytes | None = plain
    if chance.random() < 0.5:
        content, names, honest = _spoiled(chance, content, names), _misnamed(chance, names), None
    return HostileBody(content, chance.choice((", ", ",", " , ")).join(names), honest)


def _plain(chance: random.Random) -> bytes:
    size = chance.choice(_SIZES)
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(size)
    if kind == 1:
        return chance.randbytes(min(size, 70_000))
    if kind == 2:
        return (b'{"messages": [' + b"[" * 50) * (size // 64)
    return _EMPTY_GZIP * (min(size, 3_000_000) // len(_EMPTY_GZIP))


def _spoiled(chance: random.Random, content: bytes, names: list[str]) -> bytes:
    at = chance.randrange(len(content) + 1)
    match chance.randrange(6):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + chance.randbytes(8) + content[at + 8 :]
        case 2:
            return content + content
        case 3:
            return content + chance.randbytes(1000)
        case 4:
            return _EMPTY_GZIP * 100_000
        case _:
            return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + _EMPTY_BLOCK * 200_000


def _misnamed(chance: random.Random, names: list[str]) -> list[str]:
    return chance.choice(
        (names, names[:-1], [*names, *names], names[::-1], [*names, "br"], ["gzip"] * 40, ["gzip"])
    )
