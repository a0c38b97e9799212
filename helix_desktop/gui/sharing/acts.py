"""What the window shows of a shared workspace, and what is done about it: the line below its name, other computers' conversations,
Continue here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.chat.page import ChatPage
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.frame.sidebar import Sidebar
from helix_desktop.gui.sharing import words
from helix_desktop.gui.showing import Showing
from helix_desktop.gui.words import tr

STAYS = 60_000


class SharingActs(QObject):
    """Follows the workspace in front. `listed`: its conversations are to be listed anew; `opened`: show one."""

    def __init__(
        self,
        showing: Showing,
        doing: Doing,
        parts: tuple[Sidebar, ChatPage, Notices],
        listed: Callable[[], object],
        opened: Callable[[str], object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._showing, self._doing, self._listed, self._opened = showing, doing, listed, opened
        self._sidebar, self._chat, self._notices = parts
        self._leave: Callable[[], None] = lambda: None
        self._told: set[str] = set()  # branches the user was told of
        showing.workspace_changed.connect(self._follow)
        showing.conversation_changed.connect(self._show_writer)
        self._chat.foreign.taking_over.connect(self.take_over)

    def _follow(self) -> None:
        self._leave()
        bench = self._showing.bench
        self._leave = bench.sharing.watch(self._changed) if bench is not None else lambda: None
        self._changed()

    def _changed(self) -> None:
        bench = self._showing.bench
        standing = bench.sharing.standing if bench is not None else None
        self._sidebar.show_sharing(words.line(standing) if standing else "", words.whole(standing) if standing else "")
        if bench is not None:
            self._listed()
            self._tell_branches()
        self._show_writer()

    def _show_writer(self) -> None:
        """Where another computer writes there is no composer."""
        bench, session = self._showing.bench, self._showing.session
        machine = bench.sharing.elsewhere(session.id) if bench is not None and session is not None else ""
        row = bench.row(session.id) if bench is not None and session is not None else None
        self._chat.show_writer(row.agent if row is not None else "", machine)
        self._chat.way_on.show_end(session)

    def _tell_branches(self) -> None:
        bench = self._showing.bench
        for branch in () if bench is None else bench.sharing.branches.values():
            row = bench.row(branch) if bench is not None else None
            if branch not in self._told and row is not None:
                self._told.add(branch)
                text = tr(
                    "Another computer also wrote to this conversation. Both versions are kept: yours is now “{title}”.",
                    title=row.title,
                )
                self._notices.tell(text, button=tr("Open"), act=partial(self._opened, branch), stays=STAYS)

    def take_over(self) -> None:
        """Continue here."""
        bench, session = self._showing.bench, self._showing.session
        if bench is None or session is None:
            return

        def failed(error: HelixError) -> None:
            self._show_writer()
            self._notices.tell_error(error)

        def done(_result: None) -> None:
            self._show_writer()
            self._chat.composer.text.setFocus()

        work = bench.sharing.take_over(session.id)
        self._doing.do(work, name="continue here", then=done, failed=failed, owner=self)
