"""What all items of one chat share while they are laid out, and what of them is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from PySide6.QtGui import QImage

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.gui.transcript.boxes import Formula, Key
from helix_desktop.gui.transcript.drawing import Ink
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.values import dataclass


class Contents(Protocol):
    """Content that is not in the facts. What is not there yet is None, is fetched, and the item is laid out again."""

    def text(self, stored: Stored) -> str | None:
        """The first part of an entry."""
        ...

    def image(self, stored: Stored) -> QImage | None: ...

    def formula(self, latex: str, *, display: bool, size: float, colour: str) -> Formula | None: ...

    def trouble(self, digest: Digest) -> str:
        """Why an entry cannot be shown, in a sentence; empty where nothing is wrong."""
        ...

    def child(self, conversation: str) -> Items | None: ...


@dataclass(slots=True)
class Page:
    """`prefix` keeps what is open in a nested chat apart."""

    ink: Ink
    width: float
    items: Items
    contents: Contents
    now: Callable[[], float]
    opened: dict[Key, int] = field(default_factory=dict)
    prefix: Key = ()

    def open(self, key: Key, *, default: bool = False) -> bool:
        return bool(self.opened.get((*self.prefix, *key), default))

    def amount(self, key: Key) -> int:
        """How much more than usual is shown."""
        return self.opened.get((*self.prefix, *key), 0)

    def key(self, *parts: object) -> Key:
        return (*self.prefix, *parts)

    def nested(self, items: Items, by: float, prefix: Key) -> Page:
        """A sub-agent's chat inside this one."""
        return Page(self.ink, self.width - by, items, self.contents, self.now, self.opened, prefix)
