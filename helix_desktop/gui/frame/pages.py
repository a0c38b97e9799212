"""The pages of the window and how they are told what to show: the one place that knows their ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Event, FactAppended
from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.view import State
from helix_desktop.errors import NotThere
from helix_desktop.gui.background import Doing
from helix_desktop.gui.inspector.panel import Inspector
from helix_desktop.gui.links import Place
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.showing import Showing
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.pane import TranscriptPane
from helix_desktop.gui.words import tr

if TYPE_CHECKING:
    from helix_desktop.gui.cache.page import CachePage
    from helix_desktop.gui.changes.page import ChangesPage
    from helix_desktop.gui.timeline.page import TimelinePage


class Present:
    """Where the chat's content comes from: the workspace that is in front. Hashes mean the same in all of them."""

    def __init__(self, bench: Callable[[], Workbench | None]) -> None:
        self._bench = bench

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return await self._there().workspace.cache.read(digest, start, length)

    async def child(self, conversation: str) -> Sequence[Recorded]:
        return await self._there().child(conversation)

    def _there(self) -> Workbench:
        bench = self._bench()
        if bench is None:
            raise NotThere(tr("No workspace is open."))
        return bench


class Pages(QObject):
    """`wanted` carries a value of `transcript/intents.py`. All pages but the chat are imported and made when they are first needed;
    `made` carries one's name and the page.
    """

    wanted = Signal(object)
    made = Signal(str, object)

    def __init__(self, theme: Theme, doing: Doing, showing: Showing, memory: Memory, parent: QWidget) -> None:
        super().__init__(parent)
        self._common = theme, doing, parent
        self._memory = memory
        self._showing = showing
        self._leave: Callable[[], object] = lambda: None
        self.transcript = TranscriptPane(theme, doing, Present(lambda: showing.bench), parent)
        self.inspector = Inspector(theme, doing, parent)
        for page in (self.transcript, self.inspector):
            page.wanted.connect(self.wanted)
        self.inspector.looked_at.connect(showing.show_moment)
        showing.leaving.connect(self.keep)
        showing.workspace_changed.connect(self._show_workspace)
        showing.conversation_changed.connect(self._show_conversation)

    # --- made when they are first needed

    @cached_property
    def cache(self) -> CachePage:
        from helix_desktop.gui.cache.page import CachePage

        page = CachePage(*self._common)
        self._made("cache", page)
        self._open_cache(page)
        return page

    @cached_property
    def timeline(self) -> TimelinePage:
        from helix_desktop.gui.timeline.page import TimelinePage

        page = TimelinePage(*self._common)
        self._made("timeline", page)
        page.open(self._showing.session, self._showing.bench)
        return page

    @cached_property
    def changes(self) -> ChangesPage:
        from helix_desktop.gui.changes.page import ChangesPage

        page = ChangesPage(*self._common)
        self._made("changes", page)
        self._open_changes(page)
        return page

    def _made(self, name: str, page: CachePage | TimelinePage | ChangesPage) -> None:
        page.wanted.connect(self.wanted)
        self.made.emit(name, page)

    def is_made(self, name: str) -> bool:
        return name in vars(self)

    def _open_cache(self, page: CachePage) -> None:
        """The table of a workspace's entries, with the columns it was left with."""
        bench = self._showing.bench
        if bench is None:
            return
        page.restore_layout(self._memory.get("layout", bench.id, "cache", default=""))
        self._leave()
        self._leave = bench.watch_limit(page.show_over)
        page.show_over(bench.over_limit())
        page.open(bench.workspace, lambda: [(row.id, row.title) for row in bench.conversations()])

    def _open_changes(self, page: ChangesPage) -> None:
        bench, session = self._showing.bench, self._showing.session
        page.open(bench.changes if bench else None, session.id if session else "")

    # --- what is shown

    def _show_workspace(self) -> None:
        if self.is_made("cache"):
            self._open_cache(self.cache)

    def _show_conversation(self) -> None:
        """Where its reader was."""
        session, bench = self._showing.session, self._showing.bench
        history = session.conversation.state if session else State()
        self.transcript.open(history, self._place_in(session.id) if session else None)
        self.inspector.open(session, bench)
        if self.is_made("timeline"):
            self.timeline.open(session, bench)
        if self.is_made("changes"):
            self._open_changes(self.changes)

    def keep(self) -> None:
        """Remember what a person has set up by hand."""
        self.keep_place()
        if self._showing.bench is not None and self.is_made("cache"):
            self._memory.put("layout", self._showing.bench.id, "cache", value=self.cache.layout_state())

    def keep_place(self) -> None:
        """Remember where the reader of the conversation is; at its end nothing needs to be."""
        session, bench = self._showing.session, self._showing.bench
        if session is not None and bench is not None:
            seq, below, follow = self.transcript.place()
            self._memory.put("place", bench.id, session.id, value=[] if follow else [seq, below])

    def _place_in(self, conversation: str) -> tuple[int, int, bool] | None:
        workspace = self._showing.bench.id if self._showing.bench else ""
        kept = self._memory.get("place", workspace, conversation, default=list[int]())
        return (kept[0], kept[1], False) if len(kept) == 2 and all(isinstance(n, int) for n in kept) else None

    def take(self, events: tuple[Event, ...]) -> None:
        """What happened in the conversation that is shown."""
        self.transcript.hear(events)
        self.inspector.hear(events)
        if self.is_made("timeline"):
            self.timeline.hear(events)
        if self.is_made("changes"):
            self.changes.hear(events)
        if self.is_made("cache") and any(isinstance(event, FactAppended) for event in events):
            self.cache.refresh()

    def follow(self) -> None:
        """To the end of the conversation, and along with it."""
        self.transcript.view.jump_to_end()

    def show_entry(self, digest: Digest) -> None:
        self.cache.show_entry(digest)

    def show_place(self, place: Place) -> None:
        """A message of the open conversation, or a fold in the timeline."""
        if place.kind == "fold":
            self.timeline.show_fold(place.fold)
        elif place.seq:
            self.transcript.show_seq(place.seq)

    def find(self, page: str) -> None:
        """Find on a page."""
        if page == "cache":
            self.cache.focus_search()
        elif page == "chat":
            self.transcript.find()
