"""Shows the state of sharing, other computers' conversations, and “Continue here”."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.errors import HelixError
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.sharing import sharing_sentences
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.gui.workbench_types import Session, Workbench

BRANCH_NOTICE_MS = 60_000


class SharingController(QObject):
    """Follows the open workspace."""

    def __init__(self, contents: WindowContents) -> None:
        super().__init__(contents.frame)
        parts = contents.parts
        sides = contents.sides
        self._parts = parts
        self._showing = parts.showing
        self._sidebar = contents.frame.sidebar
        self._sides = sides
        self._stop_watching_sharing: Callable[[], None] = lambda: None
        self._announced_branches: set[str] = set()  # Those that the user has been told about.
        sides.call_for_each_side(self._connect_taking_over)
        sides.conversation_shown.connect(self.show_writers_in_chats)
        parts.showing.workspace_changed.connect(self._watch_open_workspace)
        parts.showing.conversation_changed.connect(self.show_writers_in_chats)

    def _connect_taking_over(self, side: ChatPage) -> None:
        self._sides.connect_side(side, side.foreign.taking_over, self.take_over_shown_conversation)

    def _watch_open_workspace(self) -> None:
        self._stop_watching_sharing()
        self._stop_watching_sharing = lambda: None
        bench = self._showing.bench
        if bench is not None:
            self._stop_watching_sharing = bench.sharing.watch_sharing(
                self._show_sharing_and_list_conversations
            )
        self._show_sharing_and_list_conversations()

    def _show_sharing_and_list_conversations(self) -> None:
        bench = self._showing.bench
        if bench is None:
            self._sidebar.show_sharing_line("", "")
        else:
            state = bench.sharing.sharing_state
            summary = sharing_sentences.describe_sharing_briefly(state)
            details = sharing_sentences.describe_sharing_fully(state)
            self._sidebar.show_sharing_line(summary, details)
            self._sides.refresh_conversations()
            self._announce_new_branches(bench)
        self.show_writers_in_chats()

    def show_writers_in_chats(self) -> None:
        """Hides the composer while another computer writes to the conversation."""
        workspace = self._showing.workspace
        bench = self._showing.bench
        for side in self._sides.sides:
            session = side.session
            if workspace is None or session is None:
                side.show_foreign_writer_or_composer("", "")
                side.turn_end_help.show_last_turn_end(None)
                continue
            agent = ""
            row = workspace.conversation_row(session.id)
            if row is not None:
                agent = row.agent
            machine = ""
            if bench is not None:
                machine = bench.sharing.other_machine_writing(session.id)
            side.show_foreign_writer_or_composer(agent, machine)
            side.turn_end_help.show_last_turn_end(session)

    def _announce_new_branches(self, bench: Workbench) -> None:
        for branch in bench.sharing.synced_sessions.branch_by_conversation.values():
            row = bench.conversation_row(branch)
            if row is None or branch in self._announced_branches:
                continue
            self._announced_branches.add(branch)
            text = tr("Another computer also wrote to this conversation. Both versions are kept: yours is now “{title}”.", title=row.title)  # fmt: skip
            self._parts.notices.show_notice(
                text,
                button=tr("Open"),
                act=partial(self._sides.go_to_conversation, branch),
                shown_ms=BRANCH_NOTICE_MS,
            )

    def take_over_shown_conversation(self) -> None:
        bench = self._showing.bench
        session = self._showing.session
        if bench is None or session is None:
            return

        work = bench.sharing.take_over_conversation(session.id)
        focus_composer = partial(self._focus_composer_of, session)
        self._parts.run_for_window(work, then=focus_composer, failed=self._show_take_over_error)

    def _focus_composer_of(self, session: Session, _result: None) -> None:
        """Lets the user write at once, unless another conversation is shown meanwhile."""
        self.show_writers_in_chats()
        if self._showing.session is not session:
            return
        for side in self._sides.sides:
            if side.session is session:
                side.composer.text.setFocus()

    def _show_take_over_error(self, error: HelixError) -> None:
        self.show_writers_in_chats()
        self._parts.notices.show_error_notice(error)
