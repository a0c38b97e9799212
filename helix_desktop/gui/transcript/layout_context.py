"""What all items of a chat share while they are laid out, including which sections are open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from PySide6.QtGui import QImage

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.basic_boxes import FormulaPicture, SectionKey
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems


class TranscriptContent(Protocol):
    """Content that is not in the facts. What is not there yet is None, is fetched, and the item is laid out again."""

    def get_entry_text(self, stored: Stored) -> str | None: ...

    def get_entry_image(self, stored: Stored) -> QImage | None: ...

    def get_formula_picture(self, latex: str, *, display: bool, size: float, colour: str) -> FormulaPicture | None: ...

    def explain_missing_entry(self, digest: Digest) -> str:
        """Why an entry cannot be shown, in a sentence; empty where nothing is wrong."""
        ...

    def get_subagent_items(self, conversation: str) -> TranscriptItems | None: ...


@dataclass(slots=True)
class LayoutContext:
    """`key_prefix` separates the open sections of a nested chat from those of the outer one."""

    ink: DrawingStyle
    width: float
    items: TranscriptItems
    contents: TranscriptContent
    now: Callable[[], float]
    section_amounts: dict[SectionKey, int] = field(default_factory=dict)
    key_prefix: SectionKey = ()

    def is_section_open(self, key: SectionKey, *, default: bool = False) -> bool:
        return bool(self.section_amounts.get((*self.key_prefix, *key), default))

    def section_amount(self, key: SectionKey) -> int:
        return self.section_amounts.get((*self.key_prefix, *key), 0)

    def section_key(self, *parts: object) -> SectionKey:
        return (*self.key_prefix, *parts)

    def nested_context(self, items: TranscriptItems, by: float, prefix: SectionKey) -> LayoutContext:
        """A sub-agent's chat inside this one."""
        return LayoutContext(self.ink, self.width - by, items, self.contents, self.now, self.section_amounts, prefix)
