"""Fetches content that is not in the facts: outputs, pictures, a sub-agent's conversation."""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication, QImage

from helix_desktop.engine.facts import Recorded, Stored
from helix_desktop.engine.hidden_characters import is_mostly_text
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.widgets import run_after_events
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.basic_boxes import FormulaPicture
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.translation import format_number, tr

if TYPE_CHECKING:
    from helix_desktop.gui.transcript.formula_pictures import FormulaRequest

FIRST = 64 * 1024  # So many bytes of an output are read.
LARGEST_PICTURE = 24 << 20
WIDEST = 1_440  # Pictures are kept at no more than so many pixels' width.
KEPT = 64  # So many contents are kept.
FORMULAS = 1_000  # So many drawn formulas are kept.


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
        text = self._kept.get(stored.digest)
        if isinstance(text, str):
            self._kept.move_to_end(stored.digest)
            return text
        if stored.digest not in self._trouble:
            self._start_fetch_unless_running(stored.digest, self.read_entry_text(stored))
        return None

    def get_or_fetch_entry_image(self, stored: Stored) -> QImage | None:
        key = ("image", stored.digest)
        image = self._kept.get(key)
        if isinstance(image, QImage):
            self._kept.move_to_end(key)
            return image
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
        request = FormulaRequest(latex, display, size, colour, ratio)
        if request in self._drawn:
            return self._drawn[request]
        if request in self._undrawn:
            return None
        # The first missing one waits a moment for the others of the same text.
        if not self._undrawn:
            run_after_events(self, self._draw_missing_formulas)
        self._undrawn[request] = None
        return None

    def _draw_missing_formulas(self) -> None:
        """Has all formulas drawn that were asked for and are not drawn yet.

        When the pictures are there, `formulas_drawn` tells the chat. What was asked for meanwhile
        is drawn next.
        """
        from helix_desktop.gui.transcript.formula_pictures import draw_formulas

        requests = tuple(self._undrawn)

        def remember_drawn_formulas(pictures: Sequence[FormulaPicture | None]) -> None:
            for request, picture in zip(requests, pictures, strict=True):
                self._drawn[request] = picture
                self._undrawn.pop(request, None)
            # The formulas that were drawn first are forgotten first.
            while len(self._drawn) > FORMULAS:
                oldest = next(iter(self._drawn))
                del self._drawn[oldest]
            self.formulas_drawn.emit()
            if self._undrawn:
                self._draw_missing_formulas()

        self._doing.run_in_background(
            draw_formulas(requests), then=remember_drawn_formulas, owner=self
        )

    def get_or_fetch_subagent_items(self, conversation: str) -> TranscriptItems | None:
        items = self._kept.get(conversation)
        if isinstance(items, TranscriptItems):
            return items
        self._start_fetch_unless_running(conversation, self._read_subagent_items(conversation))
        return None

    def explain_missing_entry(self, digest: Digest) -> str:
        return self._trouble.get(digest, "")

    def discard_failures_and_subagent_items(self) -> None:
        """Forgets failures and sub-agents' conversations, so that they are fetched again."""
        self._trouble.clear()
        for conversation in self._fetched_subagents():
            del self._kept[conversation]

    def refetch_subagent_items(self) -> None:
        """Fetches sub-agents' conversations again. Until then, they are shown as they were."""
        for conversation in self._fetched_subagents():
            self._start_fetch_unless_running(conversation, self._read_subagent_items(conversation))

    def _fetched_subagents(self) -> list[str]:
        """Returns the conversations of sub-agents that are kept here."""
        conversations: list[str] = []
        for key, content in self._kept.items():
            if isinstance(content, TranscriptItems):
                conversations.append(str(key))
        return conversations

    def _start_fetch_unless_running(self, key: object, work: Coroutine[Any, Any, object]) -> None:
        """Reads a content in the background, so that the chat can be drawn without waiting.

        Whether the content was read or not, `content_arrived` tells the chat to draw again. A
        content is then found in `_kept`, which forgets the least recently used one when it has
        too many. The reason for a failure is found in `_trouble`.
        """
        if key in self._asked:
            work.close()  # Python warns of a coroutine that is neither run nor closed.
            return
        self._asked.add(key)

        def remember_fetched(content: object) -> None:
            self._asked.discard(key)
            self._kept[key] = content
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self.content_arrived.emit()

        def remember_fetch_failure(error: HelixError) -> None:
            self._asked.discard(key)
            if isinstance(key, tuple):  # A picture's key has its digest behind its kind.
                _, digest = key
            else:
                digest = key
            if isinstance(digest, Digest):
                self._trouble[digest] = translate_sentences(str(error))
            self.content_arrived.emit()

        self._doing.run_in_background(
            work, then=remember_fetched, owner=self, failed=remember_fetch_failure
        )

    async def read_entry_text(self, stored: Stored) -> str:
        """Reads as much of an entry as the chat shows, or what it is if it is not text."""
        content = await self._source.read(stored.digest, 0, min(stored.size, FIRST))
        if not is_mostly_text(content):
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
