"""Fetches content that is not in the facts: outputs, pictures, a sub-agent's conversation."""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QImage

from helix_desktop.engine.facts import Recorded, Stored
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.basic_boxes import FormulaPicture
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.translation import format_number, tr

if TYPE_CHECKING:
    from helix_desktop.gui.transcript.formula_pictures import FormulaRequest

FIRST = 64 * 1024
LARGEST_PICTURE = 24 << 20
WIDEST = 1_440
KEPT = 64
FORMULAS = 1_000


class TranscriptContentSource(Protocol):
    """Supplies content, which the workspace holds."""

    async def read(self, digest: Digest, start: int, length: int) -> bytes: ...
    async def read_subagent_facts(self, conversation: str) -> Sequence[Recorded]: ...
    def running_state_of_subagent(self, conversation: str) -> ConversationActivity: ...


class FetchedTranscriptContent(QObject):
    """Keeps the content requested last, and signals when missing content has arrived."""

    content_arrived = Signal()
    formulas_drawn = Signal()

    def __init__(
        self,
        source: TranscriptContentSource,
        doing: BackgroundRunner,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._source = source
        self._doing = doing
        self._kept: OrderedDict[object, object] = OrderedDict()
        self._asked: set[object] = set()
        self._drawn: dict[FormulaRequest, FormulaPicture | None] = {}
        self._undrawn: dict[FormulaRequest, None] = {}
        self._trouble: dict[Digest, str] = {}

    def get_or_fetch_entry_text(self, stored: Stored) -> str | None:
        found = self._kept.get(stored.digest)
        if isinstance(found, str):
            self._kept.move_to_end(stored.digest)
            return found
        if stored.digest not in self._trouble:
            self._start_fetch_unless_running(stored.digest, self.read_entry_text(stored))
        return None

    def get_or_fetch_entry_image(self, stored: Stored) -> QImage | None:
        key = ("image", stored.digest)
        found = self._kept.get(key)
        if isinstance(found, QImage):
            self._kept.move_to_end(key)
            return found
        if stored.size > LARGEST_PICTURE:
            self._trouble[stored.digest] = tr(
                "This image is too large to show here. Open it on the Cache page."
            )
        elif stored.digest not in self._trouble:
            self._start_fetch_unless_running(key, self._read_entry_image(stored))
        return None

    def get_or_draw_formula(
        self, latex: str, *, display: bool, size: float, colour: str
    ) -> FormulaPicture | None:
        """Returns a formula as a picture. Missing ones are drawn together, off the
        window's thread.
        """
        from helix_desktop.gui.transcript.formula_pictures import FormulaRequest

        ratio = QGuiApplication.instance().devicePixelRatio()  # type: ignore[union-attr]
        wanted = FormulaRequest(latex, display, size, colour, ratio)
        if wanted in self._drawn:
            return self._drawn[wanted]
        if wanted not in self._undrawn:
            if not self._undrawn:
                QTimer.singleShot(0, self, self._draw_missing_formulas)
            self._undrawn[wanted] = None
        return None

    def _draw_missing_formulas(self) -> None:
        from helix_desktop.gui.transcript.formula_pictures import draw_formulas

        wanted = tuple(self._undrawn)

        def remember_drawn_formulas(found: Sequence[FormulaPicture | None]) -> None:
            self._drawn |= dict(zip(wanted, found, strict=True))
            while len(self._drawn) > FORMULAS:
                self._drawn.pop(next(iter(self._drawn)))
            self._undrawn = {each: None for each in self._undrawn if each not in self._drawn}
            self.formulas_drawn.emit()
            if self._undrawn:
                self._draw_missing_formulas()

        self._doing.run_in_background(
            draw_formulas(wanted), then=remember_drawn_formulas, owner=self
        )

    def get_or_fetch_subagent_items(self, conversation: str) -> TranscriptItems | None:
        found = self._kept.get(conversation)
        if isinstance(found, TranscriptItems):
            return found
        self._start_fetch_unless_running(conversation, self._read_subagent_items(conversation))
        return None

    def explain_missing_entry(self, digest: Digest) -> str:
        return self._trouble.get(digest, "")

    def discard_failures_and_subagent_items(self) -> None:
        """Forgets failures and sub-agents' conversations, so that they are fetched again."""
        self._trouble.clear()
        for key in [key for key, value in self._kept.items() if isinstance(value, TranscriptItems)]:
            del self._kept[key]

    def refetch_subagent_items(self) -> None:
        """Fetches sub-agents' conversations again. Until then, they are shown as they were."""
        for key in [key for key, value in self._kept.items() if isinstance(value, TranscriptItems)]:
            self._start_fetch_unless_running(key, self._read_subagent_items(str(key)))

    def _start_fetch_unless_running(self, key: object, work: Coroutine[Any, Any, object]) -> None:
        if key in self._asked:
            work.close()
            return
        self._asked.add(key)

        def remember_fetched(found: object) -> None:
            self._asked.discard(key)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self.content_arrived.emit()

        def remember_fetch_failure(error: HelixError) -> None:
            self._asked.discard(key)
            digest = key
            if isinstance(key, tuple):
                digest = key[1]
            if isinstance(digest, Digest):
                self._trouble[digest] = translate_sentences(str(error))
            self.content_arrived.emit()

        self._doing.run_in_background(
            work, then=remember_fetched, owner=self, failed=remember_fetch_failure
        )

    async def read_entry_text(self, stored: Stored) -> str:
        """Reads as much of an entry as the chat shows, or what it is if it is not text."""
        content = await self._source.read(stored.digest, 0, min(stored.size, FIRST))
        if b"\0" in content[:4096]:
            return tr(
                "[{n} bytes of {kind}, not text]",
                n=format_number(stored.size),
                kind=stored.media_type,
            )
        return content.decode("utf-8", "replace")

    async def _read_entry_image(self, stored: Stored) -> QImage:
        content = await self._source.read(stored.digest, 0, stored.size)
        image = await asyncio.to_thread(read_picture, content, WIDEST)
        if image is None:
            raise HelixError(
                tr("This image cannot be shown: it is damaged, too large, or in an unknown format.")
            )
        return image

    async def _read_subagent_items(self, conversation: str) -> TranscriptItems:
        facts = await self._source.read_subagent_facts(conversation)
        items = TranscriptItems(await asyncio.to_thread(build_state, facts), grouping=False)
        items.add_many_facts(facts)
        items.set_run_state(self._source.running_state_of_subagent(conversation))
        return items
