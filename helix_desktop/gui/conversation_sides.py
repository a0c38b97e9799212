"""Shows the conversations of the open workspace: one, or two side by side.

Of two sides, one is current: the one that has the focus, or that was clicked last. Everything
around the conversations follows the current side.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, SignalInstance

from helix_desktop.engine import session_events
from helix_desktop.engine.facts import Attachment, ModelReplied, UserPart, UserSaid
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.newest_facts import build_state_of_newest_facts
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import HelixError
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.message_drafts import (
    DraftPlace,
    UnsentMessage,
    UnsentMessages,
    join_drafts,
)
from helix_desktop.gui.frame.command_palette import CommandPalette
from helix_desktop.gui.frame.connect_model_panel import DEMO_MODEL
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.window_pages import OpenWorkspaceContents
from helix_desktop.gui.open_workspaces import OpenWorkspaces, describe_opening
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts

if TYPE_CHECKING:
    from helix_desktop.gui.frame.side_by_side import SideBySide

log = logging.getLogger(__name__)
NEW = "new"  # Stands for the conversation that begins with the first message.
SHOWN_NAME_LENGTH = 40  # Longer names in headings are cut to this many characters.


class ConversationSides(QObject):
    """`current` is the current side. `unsent_messages`: those whose conversation is not open yet.

    `side_added` and `conversation_shown` carry a side, and `conversation_opened` a workspace, its
    session, and the messages that waited for it. `side_selected`: another side is current now.
    `current_changed`: the current side shows another conversation, or another side is current.
    """

    side_added = Signal(object)
    side_selected = Signal()
    current_changed = Signal()
    titles_changed = Signal()
    conversation_shown = Signal(object)
    newest_messages_shown = Signal(object)
    conversation_opened = Signal(object, object, object)

    def __init__(
        self,
        parts: WindowParts,
        frame: WindowFrame,
        palette: CommandPalette,
        workspaces: OpenWorkspaces,
    ) -> None:
        super().__init__(frame)
        self._parts = parts
        self._frame = frame
        self._showing = parts.showing
        self._state_file = parts.state_file
        self._palette = palette
        self._workspaces = workspaces
        self._side_by_side: SideBySide | None = None
        self.unsent_messages = UnsentMessages(parts.state_file)
        self.current = self._build_side()
        self.sides = [self.current]
        parts.requests.conversation_list_changed.connect(self.refresh_conversations)

    def _build_side(self) -> ChatPage:
        source = OpenWorkspaceContents(lambda: self._showing.workspace)
        parts = self._parts
        side = ChatPage(parts.theme, parts.state_file, source, parts.runner, self._frame.page_area)
        for control in side.controls:
            control.installEventFilter(parts.notices)
        return side

    def call_for_each_side(self, serve: Callable[[ChatPage], object]) -> None:
        """Calls `serve` with each side that there is, and with any that is added later."""
        for side in self.sides:
            serve(side)
        self.side_added.connect(serve)

    def connect_side(
        self, side: ChatPage, signal: SignalInstance, handler: Callable[..., object]
    ) -> None:
        """Connects a signal of one side. What is done on a side selects it first, even if a
        screen reader does it without the focus.
        """

        def select_and_handle(*signal_values: object) -> None:
            self.select_side(side)
            # A side that was closed meanwhile cannot be selected, so its signal is ignored.
            if side is self.current:
                handler(*signal_values)

        signal.connect(select_and_handle)

    # --- Conversations that are not open yet

    def show_composer_before_opening(
        self, place: DraftPlace, name: str, sent: Sequence[object] = ()
    ) -> None:
        """Lets the user write in a conversation before it is open. `sent`: messages
        that were already sent there.
        """
        workspace, conversation = place
        side = self.current
        side.awaited_conversation = conversation
        self.unsent_messages.add_unsent_messages_of_state_file(place, sent)
        side.show_transcript_or_start(name, begun=conversation != NEW, loads=True)
        side.explain_loading(describe_opening(name))
        last_page = self._state_file.get_remembered("layout", workspace, "page", default="chat")
        if last_page == "chat":
            self._frame.restore_window_layout(workspace)
        self._show_draft_and_unsent_messages(side, place, name)
        self._parts.actions.update_enabled()

    def hold_message_until_open(self, message: UnsentMessage) -> None:
        """Sends the message as soon as the conversation of the composer is open."""
        composer = self.current.composer
        held_message = replace(message, awaited_name=self.current.awaited_conversation)
        self.unsent_messages.add_unsent_message(composer.draft_place, held_message)
        composer.show_waiting_messages(
            self.unsent_messages.unsent_messages_of(composer.draft_place)
        )

    def _show_draft_and_unsent_messages(self, side: ChatPage, place: DraftPlace, name: str) -> None:
        side.composer.show_draft_of(*place, name)
        side.composer.show_waiting_messages(self.unsent_messages.unsent_messages_of(place))

    # --- The list of conversations

    def list_rows(self) -> Sequence[ConversationListRow]:
        if self._showing.workspace is None:
            return ()
        return self._showing.workspace.list_conversations()

    def find_listed_conversation(self, conversation: str = "") -> ConversationListRow | None:
        """Returns the list's row of a conversation, or of the open one without a name."""
        if self._showing.workspace is None:
            return None
        return self._showing.workspace.conversation_row(
            conversation or self._showing.conversation_id
        )

    def refresh_conversations(self) -> None:
        self._frame.sidebar.show_conversation_rows(self.list_rows())
        open_sides = [side for side in self.sides if side.session is not None]
        for side in open_sides:
            _workspace, conversation = side.composer.draft_place
            row = self.find_listed_conversation(conversation)
            if row is None or row.trashed:
                self.close_side(side)
        self._frame.sidebar.list.select_conversation(self._showing.conversation_id)
        self.titles_changed.emit()

    # --- Showing a conversation

    def go_to_conversation(
        self,
        conversation: str,
        then: Callable[[], object] | None = None,
        *,
        beside: bool = False,
    ) -> None:
        """Shows a conversation where it is open, or else in place of the current one or
        `beside` it. `then` is called when all of it is there.
        """
        bench = self._showing.workspace
        if bench is None:
            return
        side_showing_it = self.find_side(conversation)
        # In the current side, the conversation is opened again unless it is wanted `beside`.
        if side_showing_it is not None and (beside or side_showing_it is not self.current):
            self.go_to_side(side_showing_it)
            if then is not None:
                then()
            return
        if beside:
            self._open_second_side()
            self.show_session_or_new(None, awaited=conversation)
        side = self.current
        side.wanted_conversation = conversation

        self._parts.run_for_window(
            self._open_and_prepare_session(bench, conversation, side, shows_newest=then is None),
            then=partial(self._show_opened_conversation, bench, side, then),
            failed=partial(self._report_conversation_not_opened, bench, side, conversation),
        )

    async def _open_and_prepare_session(
        self, bench: ShownWorkspace, conversation: str, side: ChatPage, *, shows_newest: bool
    ) -> ShownSession:
        """Opens a conversation. Of a long one, the newest messages are shown until it is open,
        unless the user wants to see a certain place in it.
        """
        if shows_newest:
            newest_state = await _read_newest_messages(bench, conversation)
            if newest_state is not None:
                self._show_newest_messages(bench, side, conversation, newest_state)
        session = await bench.open_session(conversation)
        await side.transcript.view.build_items_of_long_history(session.conversation.state)
        return session

    def _show_newest_messages(
        self,
        bench: ShownWorkspace,
        side: ChatPage,
        conversation: str,
        newest_state: ConversationState,
    ) -> None:
        """Shows the end of a conversation that is being opened. A message can be written there."""
        is_still_wanted = side.wanted_conversation == conversation and side in self.sides
        if self._showing.workspace is not bench or not is_still_wanted:
            return
        place = (bench.id, conversation)
        if not side.is_reading_place_among(newest_state, place):
            return
        if side.composer.draft_place != place:
            self.show_session_or_new(None, awaited=conversation, side=side)
        row = bench.conversation_row(conversation)
        if row is not None:
            side.show_foreign_writer_or_composer(row.agent)
        side.show_newest_messages(newest_state, place)
        running = session_events.ActivityChanged(conversation, bench.running_state_of(conversation))
        side.transcript.view.apply_events([running])
        opening_session = bench.find_opening_session(conversation)
        if opening_session is not None:
            side.steer_opening_session(opening_session)
            self.newest_messages_shown.emit(side)

    def _show_opened_conversation(
        self,
        bench: ShownWorkspace,
        side: ChatPage,
        then: Callable[[], object] | None,
        session: ShownSession,
    ) -> None:
        """Shows an opened conversation, unless the user has gone to another one meanwhile."""
        held_messages = self.unsent_messages.pop_unsent_messages((bench.id, session.id))
        is_still_wanted = side.wanted_conversation == session.id
        is_shown = is_still_wanted and self.show_session_if_current(bench, session, side)
        if is_shown and then is not None:
            then()
        self.conversation_opened.emit(bench, session, held_messages)

    def _report_conversation_not_opened(
        self, bench: ShownWorkspace, side: ChatPage, conversation: str, error: HelixError
    ) -> None:
        self.unsent_messages.turn_unsent_messages_into_draft((bench.id, conversation))
        is_still_awaited = side.awaited_conversation == conversation
        if self._showing.workspace is bench and is_still_awaited:
            self.close_side(side)
        self._parts.notices.show_error_notice(error)

    def create_and_show_conversation(
        self,
        bench: ShownWorkspace,
        conversation: str,
        creation: Coroutine[Any, Any, ShownSession],
        *,
        explanation: str = "",
    ) -> None:
        """Shows a conversation from when its creation begins, which may take long. What the user
        writes meanwhile waits for it: the agent of the conversation before works in other files.

        `conversation` is the id that it will have. `explanation` says what is being done.
        """
        side = self.current
        place_before = side.composer.draft_place
        self.show_session_or_new(None, awaited=conversation)
        if explanation:
            side.explain_loading(explanation)
        self.go_to_side(side)
        go_back = partial(self._go_back_without_creation, bench, side, conversation, place_before)
        self._parts.run_for_window(
            creation,
            then=partial(self._show_created_conversation, bench, side),
            failed=go_back,
        )

    def _show_created_conversation(
        self, bench: ShownWorkspace, side: ChatPage, session: ShownSession
    ) -> None:
        """Shows a created conversation, unless the user has gone to another one meanwhile."""
        held_messages = self.unsent_messages.pop_unsent_messages((bench.id, session.id))
        if side.awaited_conversation == session.id:
            self.show_session_if_current(bench, session, side)
        self.refresh_conversations()
        self.conversation_opened.emit(bench, session, held_messages)

    def _go_back_without_creation(
        self,
        bench: ShownWorkspace,
        side: ChatPage,
        conversation: str,
        place_before: DraftPlace,
        error: HelixError,
    ) -> None:
        """Shows the conversation of before again. What was written for the other one becomes its
        draft, which only the user may send.
        """
        place_of_other = (bench.id, conversation)
        written_parts: list[UserPart] = []
        for message in self.unsent_messages.pop_unsent_messages(place_of_other):
            written_parts.extend(message.parts)
        written_parts.extend(self.current.composer.drafts.get_draft(place_of_other))
        self.current.composer.drafts.save_draft(place_of_other, ())

        is_still_awaited = side.awaited_conversation == conversation
        if self._showing.workspace is bench and is_still_awaited:
            self.select_side(side)
            _workspace, conversation_before = place_before
            if _can_be_shown(bench, conversation_before):
                self._open_in_current_side(bench, conversation_before)
            else:
                self.show_session_or_new(None)
        if written_parts:
            self.add_to_message_and_tell_if_current(place_before, written_parts)
        self._parts.notices.show_error_notice(error)

    def show_session_if_current(
        self, bench: ShownWorkspace, session: ShownSession, side: ChatPage | None = None
    ) -> bool:
        """Shows an opened or created conversation, unless another workspace is shown now."""
        if self._showing.workspace is not bench:
            return False
        self.show_session_or_new(session, side=side)
        return True

    def begin_new_conversation(self) -> None:
        """Shows a new conversation, instead of any that is still being opened."""
        side = self.current
        side.wanted_conversation = ""
        is_workspace_opening = self._showing.workspace is None and bool(side.awaited_conversation)
        if is_workspace_opening:
            last_message_box = self._state_file.get_remembered("box", default=dict[str, str]())
            workspace_name = last_message_box.get("name", "")
            workspace, _conversation = side.composer.draft_place
            self.show_composer_before_opening((workspace, NEW), workspace_name)
        self.show_session_or_new(None)

    def show_session_or_new(
        self, session: ShownSession | None, *, awaited: str = "", side: ChatPage | None = None
    ) -> None:
        """Shows a conversation or an empty one, in `side` or else in the current side.
        `awaited`: the id of one that is being opened.
        """
        bench = self._showing.workspace
        side = side or self.current
        if bench is None or side not in self.sides:
            return
        if session is None:
            conversation = awaited
        else:
            conversation = session.id

        side_showing_it = self.find_side(conversation)
        # No conversation is shown on both sides.
        if side_showing_it is not None and side_showing_it is not side:
            self.go_to_side(side_showing_it)
            return

        side.leave_session()
        side.awaited_conversation = awaited
        self._fill_side(side, bench, session, conversation)
        self.conversation_shown.emit(side)
        side.measuring.start()
        if session is not None:
            side.bridge.listen_to_session(session.subscribe_to_events)
            self._workspaces.shown_activity.mark_failure_seen(conversation)
        if side is self.current:
            self.focus_current_composer()

    def _fill_side(
        self, side: ChatPage, bench: ShownWorkspace, session: ShownSession | None, conversation: str
    ) -> None:
        workspace_name = _shorten_workspace_name(bench.name)
        place = (bench.id, conversation or NEW)
        side.open_transcript_of(session, place)
        self._show_draft_and_unsent_messages(side, place, workspace_name)
        if session is not None:
            activity = self._workspaces.shown_activity
            side.transcript.view.apply_events(activity.build_events_of_unfinished_work(session))

        if side is self.current:
            self._announce_current_side()
            message_box = {
                "name": workspace_name,
                "is_shown": not side.composer.isHidden(),
                "opening": describe_opening(workspace_name),
            }
            self._state_file.remember_value("box", value=message_box)

        is_being_opened = bool(side.awaited_conversation)
        if session is None:
            model = bench.model_of_conversation("")
        else:
            model = bench.model_of_conversation(session.id)
        side.show_transcript_or_start(
            workspace_name,
            begun=is_being_opened or self._has_messages(session),
            loads=is_being_opened,
            scripted=model == DEMO_MODEL,
        )

    def _has_messages(self, session: ShownSession | None) -> bool:
        """Whether it has a message. An own conversation without one counts as new."""
        if session is None:
            return False
        row = self.find_listed_conversation(session.id)
        if row is not None and row.agent:
            return True
        facts = session.conversation.state.facts
        return any(isinstance(recorded.fact, UserSaid | ModelReplied) for recorded in facts)

    def focus_current_composer(self) -> None:
        """Focuses the composer of the current conversation, unless something covers it."""
        if self._showing.page == "chat" and not self._palette.isVisible():
            self.current.composer.text.setFocus()

    # --- Two conversations side by side

    def open_last_conversations(self, bench: ShownWorkspace) -> None:
        """Shows the conversations that were shown when the user last left this workspace."""
        current_one = self._state_file.get_remembered("conversation", bench.id, default="")
        other_one = self._state_file.get_remembered("beside", bench.id, default="")
        place_of_other = self._state_file.get_remembered("place-beside", bench.id, default="")
        # The conversation that is opened first comes on the left.
        if not _can_be_shown(bench, current_one):
            self.show_session_or_new(None)
        elif not _can_be_shown(bench, other_one):
            self._open_in_current_side(bench, current_one)
        elif place_of_other == "left":
            self._open_in_current_side(bench, other_one)
            self.go_to_conversation(current_one, beside=True)
        else:
            self._open_in_current_side(bench, current_one)
            self.go_to_conversation(other_one, beside=True)
            self.go_to_other_side()

    def _open_in_current_side(self, bench: ShownWorkspace, conversation: str) -> None:
        # While a workspace opens, the content of the previous one must not be visible.
        self.show_session_or_new(None, awaited=conversation)
        row = bench.conversation_row(conversation)
        if row is not None:
            self.current.show_foreign_writer_or_composer(row.agent)
        self.go_to_conversation(conversation)

    def find_side(self, conversation: str) -> ChatPage | None:
        """Returns the side that shows a conversation or waits for it. An empty name
        means a new conversation.
        """
        wanted_place = (self._showing.workspace_id, conversation or NEW)
        for side in self.sides:
            if side.composer.draft_place == wanted_place:
                return side
        return None

    def select_side(self, side: ChatPage) -> None:
        """Makes this side, which everything around it then shows, the current one."""
        if side is not self.current and side in self.sides:
            self.current = side
            self.side_selected.emit()
            self._announce_current_side()

    def _announce_current_side(self) -> None:
        """Remembers which conversations are shown, for the next start, and announces the current
        one.
        """
        workspace, conversation = self.current.composer.draft_place
        self._showing.set_shown_conversation(self.current.session)
        if workspace:
            self._remember_shown("conversation", workspace, conversation)
            other_conversation = NEW
            for side in self.sides:
                if side is not self.current:
                    _workspace, other_conversation = side.composer.draft_place
            self._remember_shown("beside", workspace, other_conversation)
            place_of_other = ""
            if self.current is not self.sides[0]:
                place_of_other = "left"
            self._state_file.remember_value("place-beside", workspace, value=place_of_other)
        self.current_changed.emit()

    def _remember_shown(self, key: str, workspace: str, conversation: str) -> None:
        remembered = conversation
        if conversation == NEW:  # It will not be there at the next start.
            remembered = ""
        self._state_file.remember_value(key, workspace, value=remembered)

    def _open_second_side(self) -> None:
        """Makes the other side the current one, and adds it if necessary."""
        if len(self.sides) == 1:
            added = self._build_side()
            self._frame_of_both_sides().add_side(added)
            self.sides.append(added)
            self.side_added.emit(added)
            self._parts.requests.choices_changed.emit()
        self.go_to_other_side()

    def _frame_of_both_sides(self) -> "SideBySide":
        if self._side_by_side is None:
            from helix_desktop.gui.frame.side_by_side import SideBySide

            self._side_by_side = SideBySide(self._parts.theme, self._frame)
            self._side_by_side.chosen.connect(self.select_side)
            self._side_by_side.closing_wanted.connect(self.close_side)
            self._side_by_side.add_side(self.current)
            self._frame.add_page("chat", self._side_by_side)
        return self._side_by_side

    def show_titles_of_sides(self) -> None:
        if self._side_by_side is None:
            return
        titles: dict[ChatPage, str] = {}
        for side in self.sides:
            _workspace, conversation = side.composer.draft_place
            row = self.find_listed_conversation(conversation)
            titles[side] = tr("New conversation")
            if row is not None and row.title:
                titles[side] = row.title
        self._side_by_side.show_sides(titles, self.current)

    def go_to_other_side(self) -> None:
        if self.current is self.sides[0]:
            self.go_to_side(self.sides[-1])
        else:
            self.go_to_side(self.sides[0])

    def go_to_side(self, side: ChatPage) -> None:
        self._frame.switch_to_page("chat")
        self.select_side(side)
        self.focus_current_composer()

    def close_side(self, side: ChatPage) -> None:
        """Replaces a side by the other or by an empty one. Its conversation goes on and
        keeps its draft.
        """
        if len(self.sides) < 2:
            self.show_session_or_new(None)
            return
        self.sides.remove(side)
        side.leave_session()
        side.setParent(None)
        side.deleteLater()
        self.current = self.sides[0]
        self._announce_current_side()
        self.focus_current_composer()

    def close_second_side_and_leave_session(self) -> None:
        """Closes the second side and remembers its conversation, because it was not the
        user who closed it.
        """
        workspace = self._showing.workspace_id
        other_conversation = self._state_file.get_remembered("beside", workspace, default="")
        place_of_other = self._state_file.get_remembered("place-beside", workspace, default="")
        other_sides = [side for side in self.sides if side is not self.current]
        # To close a side makes the state file forget it, so both values are written back.
        for side in other_sides:
            self.close_side(side)
        self._state_file.remember_value("beside", workspace, value=other_conversation)
        self._state_file.remember_value("place-beside", workspace, value=place_of_other)
        self.current.leave_session()

    # --- Messages that are being written

    def build_attachment_receiver(self) -> Callable[[Sequence[Attachment]], None]:
        """Returns a function that adds attachments to the message being written now,
        even if they arrive late.
        """
        return partial(self._attach_to_draft, self.current.composer.draft_place)

    def _attach_to_draft(self, place: DraftPlace, attachments: Sequence[Attachment]) -> None:
        if self.add_to_message_and_tell_if_current(place, attachments):
            self.go_to_side(self.current)

    def add_to_message_and_tell_if_current(
        self, place: DraftPlace, parts: Sequence[UserPart]
    ) -> bool:
        """Adds parts to the message at `place`, shown or not. Returns whether it is the
        current one.
        """
        side = self.current
        for candidate in self.sides:
            if candidate.composer.is_message_of(place):
                side = candidate
                break
        # If no side shows the message, the composer of the current side only keeps the parts.
        is_current = side is self.current
        is_shown = side.composer.add_and_tell_if_shown(place, parts, takes_focus=is_current)
        return is_shown and is_current

    def give_message_back_and_save(
        self, place: DraftPlace, parts: Sequence[UserPart]
    ) -> Callable[[], None]:
        """Puts a message that leaves its conversation into its message box. Returns when the box
        is on the disk, with what takes the message out again unless the box was changed since.
        """
        drafts = self.current.composer.drafts
        drafts.turn_edited_message_into_draft(place)
        draft_before = drafts.get_draft(place)
        drafts.save_draft(place, join_drafts(parts, draft_before))
        self._show_saved_draft(place)
        draft_with_message = drafts.get_draft(place)
        self._state_file.write_state_file()

        def take_message_out_again() -> None:
            if drafts.get_draft(place) == draft_with_message:
                drafts.save_draft(place, draft_before)
                self._show_saved_draft(place)

        return take_message_out_again

    def _show_saved_draft(self, place: DraftPlace) -> None:
        for side in self.sides:
            if side.composer.draft_place == place:
                side.composer.show_saved_draft()
                if side is self.current:
                    side.composer.text.setFocus()

    def jump_to_end_of(self, session: ShownSession) -> None:
        for side in self.sides:
            if side.session is session:
                side.transcript.view.jump_to_end()


def _can_be_shown(bench: ShownWorkspace, conversation: str) -> bool:
    row = bench.conversation_row(conversation)
    return row is not None and not row.trashed


def _shorten_workspace_name(name: str) -> str:
    if len(name) <= SHOWN_NAME_LENGTH:
        return name
    return f"{name[: SHOWN_NAME_LENGTH - 1]}…"


async def _read_newest_messages(
    bench: ShownWorkspace, conversation: str
) -> ConversationState | None:
    """Returns the end of a conversation, or None if it is not worth it or cannot be read: whoever
    opens the conversation is told why.
    """
    try:
        newest = await bench.read_newest_facts(conversation)
        if not newest:
            return None
        return await asyncio.to_thread(build_state_of_newest_facts, newest)
    except (HelixError, ValueError):
        log.info("the newest messages of a conversation could not be shown alone", exc_info=True)
        return None
