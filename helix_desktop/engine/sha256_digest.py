"""Defines the address of content: the SHA-256 of its bytes. It becomes text only for display."""

import hashlib

from helix_desktop.fast_dataclass import dataclass

SIZE = 32  # The number of bytes in a SHA-256 hash.


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """The SHA-256 of an entry's content, which is its address."""

    raw: bytes

    # The dataclass's own takes twice as long, and there are many digests.
    def __init__(self, raw: bytes) -> None:
        if len(raw) != SIZE:
            raise ValueError(f"a SHA-256 digest has 32 bytes, not {len(raw)}")
        _set_raw(self, raw)

    @classmethod
    def of_content(cls, content: bytes) -> "Digest":
        return cls(hashlib.sha256(content).digest())

    @classmethod
    def from_hex(cls, text: str) -> "Digest":
        """Parse 64 hexadecimal digits. Raises ValueError for anything else."""
        if len(text) != 64 or not text.isascii() or not text.isalnum():
            raise ValueError(f"a SHA-256 is 64 hexadecimal digits, not {text[:80]!r}")
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        return self.raw.hex()

    @property
    def short_hex(self) -> str:
        """Return the first and last four digits, for people."""
        return f"{self.hex[:4]}…{self.hex[-4:]}"

    def __str__(self) -> str:
        return self.hex


_set_raw = vars(Digest)["raw"].__set__  # Takes two thirds of the time of `object.__setattr__`.
