"""Content of the chat that is not in the facts: outputs, pictures, a sub-agent's conversation. Read when it is looked at."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QSize, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QImage, QImageReader

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Recorded, Stored
from helix_desktop.engine.view import state_of
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.transcript.formula import Drawn, Wanted, draw
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.gui.words import numeral, tr

FIRST = 64 * 1024
LARGEST_PICTURE = 24 << 20
MOST_PIXELS = 60_000_000
WIDEST = 1_440
KEPT = 64
FORMULAS = 1_000


class Source(Protocol):
    """Where content comes from: the workspace."""

    async def read(self, digest: Digest, start: int, length: int) -> bytes: ...

    async def child(self, conversation: str) -> Sequence[Recorded]: ...


class Content(QObject):
    """The latest of what was asked for is kept. `arrived`: something that was missing is there now, or will not come;
    `drawn`: formulas are.
    """

    arrived = Signal()
    drawn = Signal()

    def __init__(self, source: Source, doing: Doing, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._source = source
        self._doing = doing
        self._kept: OrderedDict[object, object] = OrderedDict()
        self._asked: set[object] = set()
        self._drawn: dict[Wanted, Drawn | None] = {}
        self._undrawn: dict[Wanted, None] = {}
        self._trouble: dict[Digest, str] = {}

    def text(self, stored: Stored) -> str | None:
        found = self._kept.get(stored.digest)
        if isinstance(found, str):
            self._kept.move_to_end(stored.digest)
            return found
        if stored.digest not in self._trouble:
            self._ask(stored.digest, self._read(stored))
        return None

    def image(self, stored: Stored) -> QImage | None:
        key = ("image", stored.digest)
        found = self._kept.get(key)
        if isinstance(found, QImage):
            self._kept.move_to_end(key)
            return found
        if stored.size > LARGEST_PICTURE:
            self._trouble[stored.digest] = tr("This image is too large to show here. Open it in the cache.")
        elif stored.digest not in self._trouble:
            self._ask(key, self._picture(stored))
        return None

    def formula(self, latex: str, *, display: bool, size: float, colour: str) -> Drawn | None:
        """A formula as a picture; those that are missing are drawn together, off the window's thread."""
        ratio = QGuiApplication.instance().devicePixelRatio()  # type: ignore[union-attr]
        wanted = Wanted(latex, display, size, colour, ratio)
        if wanted in self._drawn:
            return self._drawn[wanted]
        if wanted not in self._undrawn:
            if not self._undrawn:
                QTimer.singleShot(0, self, self._draw)
            self._undrawn[wanted] = None
        return None

    def _draw(self) -> None:
        wanted = tuple(self._undrawn)

        def came(found: Sequence[Drawn | None]) -> None:
            self._drawn |= dict(zip(wanted, found, strict=True))
            while len(self._drawn) > FORMULAS:
                self._drawn.pop(next(iter(self._drawn)))
            self._undrawn = {each: None for each in self._undrawn if each not in self._drawn}
            self.drawn.emit()
            if self._undrawn:
                self._draw()

        self._doing.do(draw(wanted), name="draw formulas", then=came, owner=self)

    def child(self, conversation: str) -> Items | None:
        found = self._kept.get(conversation)
        if isinstance(found, Items):
            return found
        self._ask(conversation, self._conversation(conversation))
        return None

    def trouble(self, digest: Digest) -> str:
        return self._trouble.get(digest, "")

    def forget(self) -> None:
        """Ask again for what failed, and read sub-agents' conversations again."""
        self._trouble.clear()
        for key in [key for key, value in self._kept.items() if isinstance(value, Items)]:
            del self._kept[key]

    def _ask(self, key: object, work: object) -> None:
        if key in self._asked:
            work.close()  # type: ignore[attr-defined]
            return
        self._asked.add(key)

        def came(found: object) -> None:
            self._asked.discard(key)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self.arrived.emit()

        def failed(error: HelixError) -> None:
            self._asked.discard(key)
            digest = key[1] if isinstance(key, tuple) else key
            if isinstance(digest, Digest):
                self._trouble[digest] = said(str(error))
            self.arrived.emit()

        self._doing.do(work, name="content of the chat", then=came, owner=self, failed=failed)  # type: ignore[arg-type]

    async def _read(self, stored: Stored) -> str:
        content = await self._source.read(stored.digest, 0, min(stored.size, FIRST))
        if b"\0" in content[:4096]:
            return tr("[{n} bytes of {kind}, not text]", n=numeral(stored.size), kind=stored.media_type)
        return content.decode("utf-8", "replace")

    async def _picture(self, stored: Stored) -> QImage:
        content = await self._source.read(stored.digest, 0, stored.size)
        image = await asyncio.to_thread(decoded, content)
        if image is None:
            raise HelixError(tr("This image can't be shown: it is damaged, too large, or in an unknown format."))
        return image

    async def _conversation(self, conversation: str) -> Items:
        facts = await self._source.child(conversation)
        items = Items(await asyncio.to_thread(state_of, facts), grouping=False)
        items.extend(facts)
        return items


def decoded(content: bytes, widest: int = WIDEST) -> QImage | None:
    """A picture, scaled down to `widest` while it is read; None when it cannot be, or claims to be huge. May run on any thread."""
    data = QByteArray(content)
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer)
    reader.setAutoTransform(True)
    measure = reader.size()
    if not measure.isValid() or measure.width() * measure.height() > MOST_PIXELS:
        return None
    if measure.width() > widest:
        reader.setScaledSize(QSize(widest, max(1, measure.height() * widest // measure.width())))
    image = reader.read()
    return None if image.isNull() else image
