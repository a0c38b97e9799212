"""A command that runs in the background: the last part of its output, and its state."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import field

from helix_desktop.processes.command import Command
from helix_desktop.tools.aftermath import Watched
from helix_desktop.tools.tool import Use
from helix_desktop.values import dataclass

ADDRESS = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]|\blistening\b|\bport \d", re.IGNORECASE)
ALONE = (
    "Without the network a command is reached by nobody and reaches no other, on this machine either. What is to be "
    "reached, and what is to reach it, are both started with `network`."
)


@dataclass(slots=True)
class Background:
    """`kept` is the newest of its output, `dropped` how many bytes came before that, `read` how many the agent has seen."""

    name: str
    line: str
    command: Command
    started: float
    watched: Watched | None = None
    closed: bool = False  # it runs without the network
    kept: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    read: int = 0
    code: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def runs(self) -> bool:
        return self.code is None

    @property
    def state(self) -> str:
        return f"running for {time.time() - self.started:.0f} s" if self.runs else f"ended, exit code {self.code}"

    async def collect(self, use: Use, most: int) -> None:
        """Keep the newest `most` bytes of its output, until it ends."""
        try:
            async for piece in self.command.output():
                self.kept += piece
                surplus = len(self.kept) - most
                if surplus > 0:
                    del self.kept[:surplus]
                    self.dropped += surplus
                self.changed.set()
        finally:
            code = await asyncio.shield(self.command.gone())
            await asyncio.shield(self.settle(use, ask=False))
            self.code = code
            self.changed.set()

    async def settle(self, use: Use, *, ask: bool) -> None:
        """Put back, or ask about, the protected files it has changed so far; the output says so."""
        if self.watched is not None:
            self.kept += (await self.watched.settle(use, ask=ask)).encode()

    async def wait(self, seconds: float, *, for_news: bool) -> None:
        """Until it ends, or prints something new; so many seconds at the most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.runs and not (for_news and self.read < self.dropped + len(self.kept)):
                    self.changed.clear()
                    await self.changed.wait()

    def news(self) -> str:
        """What it has printed since the last look, with a note of what is gone."""
        start = max(self.read - self.dropped, 0)
        gone = max(self.dropped - self.read, 0)
        self.read = self.dropped + len(self.kept)
        text = bytes(self.kept[start:]).decode("utf-8", "replace")
        told = f"[{ALONE}]\n" if self.closed and self.runs and ADDRESS.search(text) else ""
        return (f"[{gone:,} bytes before this are gone]\n" if gone else "") + (text or "[nothing new]\n") + told
