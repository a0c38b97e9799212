"""Reads stored content of a workspace that another process has open, and checks it here."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, NotFound
from helix_desktop.workspace_host.host_interface import LONGEST_RANGE
from helix_desktop.workspace_host.host_line import HostLine

MOST_AT_ONCE = 16
LARGEST_CONTENT = 64 << 20  # More is not read whole, because it goes over a line.


class ClientContents:
    """The engine's `ContentReader`. It waits for no line: without one, NotFound says so."""

    def __init__(self, line: HostLine) -> None:
        self._line = line

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        """A range cannot be checked against the digest."""
        host = self._line.host
        if host is None:
            raise NotFound(
                "There is no connection to the workspace at this moment.",
                remedy="It is shown when the connection is back.",
            )
        content = bytearray()
        while len(content) < length:
            wanted = min(LONGEST_RANGE, length - len(content))
            piece = await host.read_content_range(digest, start + len(content), wanted)
            content += piece[:wanted]
            if len(piece) < wanted:
                break
        return bytes(content)

    async def read_content(self, digest: Digest) -> bytes:
        content = await self.read_range(digest, 0, LARGEST_CONTENT)
        if Digest.of_content(content) != digest:
            raise CacheCorrupt(
                f"The content {digest.short_hex} is damaged, or too large to be read whole from here.",
                remedy="Open the workspace where its files are.",
            )
        return content

    async def read_contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        """Returns those that exist and are intact. Several are asked for at once: over a line, each
        question costs its way there and back.
        """
        wanted = list(digests)
        contents: dict[Digest, bytes] = {}
        for start in range(0, len(wanted), MOST_AT_ONCE):
            end = start + MOST_AT_ONCE
            contents |= await self._read_at_once(wanted[start:end])
        return contents

    async def _read_at_once(self, digests: Sequence[Digest]) -> dict[Digest, bytes]:
        readings = [self._read_or_none(digest) for digest in digests]
        answers = await asyncio.gather(*readings)
        contents: dict[Digest, bytes] = {}
        for digest, content in zip(digests, answers, strict=True):
            if content is not None:
                contents[digest] = content
        return contents

    async def _read_or_none(self, digest: Digest) -> bytes | None:
        try:
            return await self.read_content(digest)
        except (NotFound, CacheCorrupt):
            return None
