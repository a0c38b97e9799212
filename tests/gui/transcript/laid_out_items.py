"""Items as they are laid out, with contents that are on their way for ever."""

from __future__ import annotations

import time

from PySide6.QtGui import QImage

from helix_desktop.engine.facts import Recorded, Stored
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import FormulaPicture, LayoutBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.layout_context import LayoutContext
from tests.gui.stand_in import StandIn


class NoContents(StandIn):
    """Everything is on its way for ever, but for what a test puts in."""

    def get_or_draw_formula(
        self, latex: str, *, display: bool, size: float, colour: str
    ) -> FormulaPicture | None:
        return None

    def __init__(self) -> None:
        self.texts: dict[Digest, str] = {}
        self.images: dict[Digest, QImage] = {}
        self.children: dict[str, TranscriptItems] = {}
        self.wrong: dict[Digest, str] = {}

    def get_or_fetch_entry_text(self, stored: Stored) -> str | None:
        return self.texts.get(stored.digest)

    def get_or_fetch_entry_image(self, stored: Stored) -> QImage | None:
        return self.images.get(stored.digest)

    def explain_missing_entry(self, digest: Digest) -> str:
        return self.wrong.get(digest, "")

    def get_or_fetch_subagent_items(self, conversation: str) -> TranscriptItems | None:
        return self.children.get(conversation)


def page_of(
    theme: Theme, facts: list[Recorded], contents: NoContents | None = None
) -> LayoutContext:
    items = TranscriptItems()
    items.add_many_facts(facts)
    return LayoutContext(DrawingStyle(theme), 720.0, items, contents or NoContents(), lambda: 0.0)


def laid(page: LayoutContext, index: int = 0) -> ItemLayout:
    made = ItemLayout(page, index, 0)
    assert made.lay_out_slice(time.perf_counter() + 600)
    return made


def kinds(made: ItemLayout) -> list[type[LayoutBox]]:
    return [type(box) for box in made.boxes]
