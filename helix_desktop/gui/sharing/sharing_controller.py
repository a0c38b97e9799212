"""Shows the state of sharing, other computers' conversations, and “Continue here”."""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.frame.sidebar import Sidebar
from helix_desktop.gui.sharing import sharing_sentences
from helix_desktop.gui.shown_state import ShownState
from helix_desktop.gui.translation import tr

BRANCH_NOTICE_MS = 60_000


class SharingController(QObject):
    """Follows the open workspace. `listed` lists its conversations again; `opened` opens one."""

    def __init__(
        self,
        showing: ShownState,
        doing: BackgroundRunner,
        parts: tuple[Sidebar, Callable[[], Sequence[ChatPage]], Notices],
        listed: Callable[[], object],
        opened: Callable[[str], object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._showing, self._doing, self._list_conversations, self._open_conversation = (
            showing,
            doing,
            listed,
            opened,
        )
        self._sidebar, self._list_chats, self._notices = parts
        self._stop_watching_sharing: Callable[[], None] = lambda: None
        self._announced_branches: set[str] = (
            set()
        )  # The branches that the user has been told about.
        showing.workspace_changed.connect(self._watch_open_workspace)
        showing.conversation_changed.connect(self.show_writers_in_chats)

    def _watch_open_workspace(self) -> None:
        self._stop_watching_sharing()
        self._stop_watching_sharing = lambda: None
        if (bench := self._showing.bench) is not None:
            self._stop_watching_sharing = bench.sharing.watch_sharing(
                self._show_sharing_and_list_conversations
            )
        self._show_sharing_and_list_conversations()

    def _show_sharing_and_list_conversations(self) -> None:
        bench = self._showing.bench
        if bench is None:
            self._sidebar.show_sharing_line("", "")
        else:
            brief = sharing_sentences.describe_sharing_briefly(bench.sharing.sharing_state)
            whole = sharing_sentences.describe_sharing_fully(bench.sharing.sharing_state)
            self._sidebar.show_sharing_line(brief, whole)
            self._list_conversations()
            self._announce_new_branches()
        self.show_writers_in_chats()

    def show_writers_in_chats(self) -> None:
        """Hides the composer while another computer writes to the conversation."""
        bench = self._showing.bench
        for chat in self._list_chats():
            shown = chat.session if bench is not None else None
            machine = (
                bench.sharing.other_machine_writing(shown.id)
                if bench is not None and shown is not None
                else ""
            )
            row = (
                bench.conversation_row(shown.id)
                if bench is not None and shown is not None
                else None
            )
            chat.show_foreign_writer_or_composer(row.agent if row is not None else "", machine)
            chat.way_on.show_last_turn_end(shown)

    def _announce_new_branches(self) -> None:
        if (bench := self._showing.bench) is None:
            return
        for branch in bench.sharing.synced_sessions.branch_by_conversation.values():
            row = bench.conversation_row(branch)
            if branch not in self._announced_branches and row is not None:
                self._announced_branches.add(branch)
                text = tr("Another computer also wrote to this conversation. Both versions are kept: yours is now “{title}”.", title=row.title)  # fmt: skip
                act = partial(self._open_conversation, branch)
                self._notices.show_notice(
                    text, button=tr("Open"), act=act, shown_ms=BRANCH_NOTICE_MS
                )

    def take_over_shown_conversation(self) -> None:
        bench, session = self._showing.bench, self._showing.session
        if bench is None or session is None:
            return

        def show_take_over_error(error: HelixError) -> None:
            self.show_writers_in_chats()
            self._notices.show_error_notice(error)

        def focus_composer(_result: None) -> None:
            self.show_writers_in_chats()
            for chat in self._list_chats():
                if chat.session is session is self._showing.session:
                    chat.composer.text.setFocus()

        work = bench.sharing.take_over_conversation(session.id)
        self._doing.run_in_background(
            work, then=focus_composer, failed=show_take_over_error, owner=self
        )
