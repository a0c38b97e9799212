"""Sends the messages of the user, and stops, continues and answers what they started."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import FileChange, UndoOutlook
from helix_desktop.engine.facts import Attachment, FoldKind, Text, UserPart, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import attachment_previews, search_suggestions
from helix_desktop.gui.changes.undo_and_redo import describe_undone_elsewhere
from helix_desktop.gui.chat.attachment_reading import AttachmentReader
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.composer import ALLOW_ALL, ALLOW_ALL_FOR_AN_HOUR
from helix_desktop.gui.chat.message_drafts import DraftPlace, UnsentMessage
from helix_desktop.gui.common.elided_label import shorten_name_list
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.conversation_sides import NEW, ConversationSides
from helix_desktop.gui.frame.window_pages import WindowPages
from helix_desktop.gui.question_dialogs import (
    DialogChoice,
    ask_allow_all,
    ask_allow_all_for_an_hour,
    ask_files,
    ask_to_choose_one,
)
from helix_desktop.gui.saved_layouts_and_drafts import new_draft_id
from helix_desktop.gui.sentence_translation import join_sentences
from helix_desktop.gui.shown_workspace import (
    ShownQueue,
    ShownSession,
    ShownWorkspace,
    client_of_host,
    workbench_of_shown,
)
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.window_actions import ACTIONS_THAT_ANSWER
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import FileChanges, NeededSummary
from helix_desktop.program_settings import ASK_ABOVE

# What other programs call our commands.
COMMANDS_ELSEWHERE = {"compact": "shorten", "handover": "shorten", "clear": "new"}
OnMessageNotSent = Callable[[HelixError | None], None]


@dataclass(frozen=True, slots=True)
class CheaperSending:
    """What is saved if old outputs are shortened first, and a function that does so and sends."""

    saved_dollars: float
    fold_and_send: Callable[[], object]


class MessageSender(QObject):
    """Sends what is written in the message boxes of all sides. What is not sent stays there.
    `turn_stopped` carries the conversation whose turn the user stops.
    """

    turn_stopped = Signal(str)

    def __init__(self, parts: WindowParts, pages: WindowPages, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self.parts = parts
        self.pages = pages
        self.sides = sides
        self._showing = parts.showing
        self.attaching = AttachmentReader(
            parts.runner,
            lambda: parts.showing.workspace,
            lambda: parts.showing.conversation_id,
            sides.build_attachment_receiver,
        )
        pages.page_made.connect(self._connect_failures_of_changes)
        sides.conversation_opened.connect(self.send_held_messages)
        sides.call_for_each_side(self._serve_message_box)
        self._declare_message_actions()
        parts.actions.shortcuts_changed.connect(self._show_shortcuts_on_answer_buttons)
        parts.showing.conversation_changed.connect(self._show_shortcuts_on_answer_buttons)
        self._show_shortcuts_on_answer_buttons()

    def _declare_message_actions(self) -> None:
        set_handler = self.parts.actions.set_action_handler
        showing = self._showing
        set_handler("compose", self._go_to_composer, when=showing.has_workspace)
        set_handler("attach", self._ask_files_to_attach, when=showing.has_workspace)
        set_handler("mode", self._open_mode_menu, when=showing.has_workspace)
        set_handler("stop", self._stop_turn_or_fold, when=self._can_stop)
        set_handler("resume", self._retry_and_resume, when=self._is_at_rest)
        set_handler("regenerate", self._regenerate, when=self._is_at_rest)
        set_handler("fold-marker", self._fold_to_markers, when=showing.sends_its_requests)
        set_handler("allow-once", partial(self._allow, "once"), when=self._is_asking)
        allow_in_conversation = partial(self._allow, "conversation")
        set_handler("allow-conversation", allow_in_conversation, when=self._is_asking)
        set_handler("allow-always", partial(self._allow, "always"), when=self._is_asking)
        set_handler("refuse", self._refuse, when=self._is_asking)
        explain = self.parts.actions.explain_condition
        explain(self._can_stop, lambda: tr("The agent is not working."))
        explain(self._is_at_rest, self._describe_why_not_at_rest)
        explain(self._is_asking, lambda: tr("The agent is not asking for anything."))

    def _serve_message_box(self, side: ChatPage) -> None:
        """Connects what is pressed on one side around its message box."""
        composer = side.composer
        actions = self.parts.actions
        # On another page, Escape would stop an agent that nobody looks at.
        actions.limit_shortcut_to("stop", side)
        connect = partial(self.sides.connect_side, side)
        connect(composer.sent, self._send_written_message)
        connect(composer.resent, self.resend_edited_message)
        connect(composer.mode_chosen, self._choose_permission_mode)
        connect(composer.fold_wanted, actions["fold-marker"].trigger)
        connect(composer.stop_wanted, actions["stop"].trigger)
        connect(composer.attach_wanted, actions["attach"].trigger)
        connect(composer.text.files_given, self.attaching.attach_dropped_data)
        connect(composer.text.long_pasted, self.attaching.attach_long_text)
        show_attachment = partial(
            attachment_previews.show_thumbnail_or_token_count, self.parts, side
        )
        composer.attachments.unknown.connect(show_attachment)
        connect(composer.attachments.opened, self._open_attached_picture)
        connect(composer.waiting.moving, self._move_queued_message)
        connect(composer.waiting.steering, self._change_time_of_queued_message)
        connect(composer.waiting.editing, self._edit_queued_message)
        connect(composer.waiting.discarding, self._discard_queued_message)
        connect(side.approvals.answered, self._answer_and_focus_composer)
        connect(side.rewrite_cost.price_wanted, actions["model-price"].trigger)
        connect(side.turn_end_help.settings_wanted, self.parts.requests.settings_wanted.emit)
        connect(side.turn_end_help.going_on, actions["resume"].trigger)
        connect(side.turn_end_help.review_wanted, actions["changes"].trigger)

    # --- When the actions can be done

    @property
    def _running(self) -> ConversationActivity:
        session = self.sides.current.steered_session
        if session is None:
            return ConversationActivity.IDLE
        return session.running

    def _is_asking(self) -> bool:
        return self._running is ConversationActivity.ASKING

    def _is_at_rest(self) -> bool:
        return self._showing.has_conversation() and self._running not in WORKING_STATES

    def _describe_why_not_at_rest(self) -> str:
        if not self._showing.has_conversation():
            return self._showing.describe_missing_conversation()
        return tr("The agent is working. Stop it first, or wait until it is done.")

    def _can_stop(self) -> bool:
        if self._running in WORKING_STATES:
            return True
        session = self.sides.current.steered_session
        return session is not None and bool(session.folding.kind_in_progress)

    # --- Sending

    def _send_written_message(
        self,
        parts: tuple[UserPart, ...],
        steer: bool,  # noqa: FBT001 - a slot
        draft_id: str,
    ) -> None:
        self.send_or_hold_message(parts, steer=steer, draft_id=draft_id)

    def send_or_hold_message(
        self, parts: tuple[UserPart, ...], *, steer: bool, draft_id: str = ""
    ) -> None:
        """Sends a message to the open or a new conversation. `draft_id`: of the draft it was."""
        draft_id = draft_id or new_draft_id()
        bench = self._showing.workspace
        session = self._showing.conversation
        composer = self.sides.current.composer
        if self.sides.current.awaited_conversation:
            self._send_below_newest_messages_or_hold(UnsentMessage(parts, steer, 0, draft_id))
        elif bench is None:
            composer.put_message_back(parts)
        elif not (bench.main_model_name or self._showing.foreign_agent):
            composer.put_message_back(parts)
            self.parts.requests.model_setup_wanted.emit()
        elif session is not None:
            unsent = UnsentMessage(parts, steer, draft_id=draft_id)
            for_estimate = composer.list_parts_for_estimate(parts)
            message = self.keep_message_to_send(bench, session, unsent, for_estimate)
            message.expand_command_and_send()
        else:
            self._begin_conversation_with(bench, parts, draft_id)

    def keep_message_to_send(
        self,
        bench: ShownWorkspace,
        session: ShownSession,
        unsent: UnsentMessage,
        parts_for_estimate: tuple[UserPart, ...] = (),
    ) -> "MessageToSend":
        """Returns a message that the window's file keeps until it is sent or back in its box: the
        user may be asked about it, and nothing else has the words meanwhile.
        """
        place = (bench.id, session.id)
        self.sides.unsent_messages.keep_until_sent(place, unsent)
        return MessageToSend(
            self,
            bench,
            session,
            unsent.parts,
            self.build_message_returner(unsent, place),
            unsent.is_steering,
            parts_for_estimate,
            unsent.draft_id,
        )

    def _send_below_newest_messages_or_hold(self, message: UnsentMessage) -> None:
        """Sends a message in a conversation that is being opened, if nothing about it needs all of
        the conversation. Otherwise it waits until the conversation is open.
        """
        side = self.sides.current
        client = client_of_host(self._showing.workspace)
        is_end_shown = side.transcript.view.items.history.has_unknown_facts
        can_be_sent = client is not None and bool(client.main_model_name) and is_end_shown
        if client is None or not can_be_sent or self._needs_whole_conversation(side, message.parts):
            self.sides.hold_message_until_open(message)
            return
        client.send_before_open(
            side.awaited_conversation,
            message.parts,
            steer=message.is_steering,
            command_id=message.draft_id,
        )
        notice = tr(
            "Your message is being sent. It is shown here when the earlier messages have been read."
        )
        self.parts.notices.show_notice(notice)

    def _needs_whole_conversation(self, side: ChatPage, parts: tuple[UserPart, ...]) -> bool:
        """Whether something about a message can only be told once all is read: what it costs,
        what its command does, or which messages are sent before it.
        """
        if self.parts.settings[ASK_ABOVE]:
            return True
        first_part = parts[0]
        if isinstance(first_part, Text) and first_part.text.startswith("/"):
            return True
        place = side.composer.draft_place
        return bool(self.sides.unsent_messages.unsent_messages_of(place))

    def _begin_conversation_with(
        self, bench: ShownWorkspace, parts: tuple[UserPart, ...], draft_id: str
    ) -> None:
        """Starts a conversation, unless its first message would cost too much for the user."""
        side = self.sides.current
        # Tells this new conversation from one that the user begins while it is being created.
        awaited_name = f"new {id(parts)}"
        side.awaited_conversation = awaited_name
        message = UnsentMessage(parts, draft_id=draft_id)
        place = (bench.id, NEW)
        self.sides.unsent_messages.keep_until_sent(place, message)
        put_message_back = self.build_message_returner(message, place)
        beginning = NewConversation(
            self,
            bench,
            side,
            awaited_name,
            put_message_back,
            message,
            parts_for_estimate=side.composer.list_parts_for_estimate(parts),
        )
        is_asked_about_price = bool(self.parts.settings[ASK_ABOVE])
        if is_asked_about_price:
            beginning.ask_about_price()
        else:
            beginning.create_and_send()

    def send_messages_held_for_workspace(self) -> None:
        """Sends messages that were written before their workspace was open."""
        draft_place = self.sides.current.composer.draft_place
        _workspace, conversation = draft_place
        if conversation == NEW:
            for message in self.sides.unsent_messages.pop_unsent_messages(draft_place):
                self.send_or_hold_message(
                    message.parts, steer=message.is_steering, draft_id=message.draft_id
                )

    def send_held_messages(
        self, bench: ShownWorkspace, session: ShownSession, messages: Sequence[UnsentMessage]
    ) -> None:
        """Sends what was written in a conversation while it was being opened."""
        place = (bench.id, session.id)
        for message in messages:
            if is_message_sent(session, message.draft_id):
                continue  # It was sent before a kill, and came back as a draft.
            has_model_or_agent = bench.main_model_name or session.conversation.state.acp_agent
            if not has_model_or_agent:
                self.sides.add_to_message_and_tell_if_current(place, message.parts)
                self.parts.requests.model_setup_wanted.emit()
                continue
            # An earlier version kept its messages without an id.
            unsent = replace(message, draft_id=message.draft_id or new_draft_id())
            to_send = self.keep_message_to_send(bench, session, unsent)
            if message.edited:
                to_send.resend_edited(message.edited)
            else:
                to_send.expand_command_and_send()

    def resend_edited_message(self, seq: int, parts: tuple[UserPart, ...], draft_id: str) -> None:
        bench = self._showing.workspace
        session = self._showing.conversation
        unsent = UnsentMessage(parts, edited=seq, draft_id=draft_id or new_draft_id())
        if bench is None or session is None:
            self.sides.hold_message_until_open(unsent)
        else:
            for_estimate = self.sides.current.composer.list_parts_for_estimate(parts)
            message = self.keep_message_to_send(bench, session, unsent, for_estimate)
            message.resend_edited(seq)

    def build_message_returner(
        self, message: UnsentMessage, draft_place: DraftPlace
    ) -> OnMessageNotSent:
        """Returns a function that puts an unsent message back into its message box and shows the
        error.
        """

        def give_message_back(error: HelixError | None) -> None:
            self.sides.unsent_messages.forget_message(message.draft_id)
            self.sides.add_to_message_and_tell_if_current(draft_place, message.parts)
            if error is not None:
                self.parts.notices.show_error_notice(error)

        return give_message_back

    def send_or_ask_if_expensive(
        self,
        price: float,
        send_it: Callable[[], object],
        if_declined: Callable[[], object],
        *,
        cheaper: CheaperSending | None = None,
    ) -> None:
        """Sends the message, after a question if its `price` in dollars is above the user's
        limit. The question offers the `cheaper` way, too, if there is one.
        """
        # The setting is in cents; 0 means that the user is never asked.
        dollar_limit = self.parts.settings[ASK_ABOVE] / 100
        if not dollar_limit or price <= dollar_limit:
            send_it()
            return

        question = tr(
            "This message would cost about {price}, which is more than your limit of {limit}. Nothing has been sent.",
            price=format_dollars(price), limit=format_dollars(dollar_limit),
        )  # fmt: skip

        choices = [DialogChoice(tr("Send"), send_it)]
        if cheaper is not None:
            hint = tr(
                "Shortening old outputs first saves about {saved}.",
                saved=format_dollars(cheaper.saved_dollars),
            )
            question = f"{question} {hint}"
            fold_first = DialogChoice(tr("Shorten first, then send"), cheaper.fold_and_send)
            choices.insert(0, fold_first)

        box = ask_to_choose_one(self.parts.widget, tr("Send this message?"), question, choices)
        box.rejected.connect(if_declined)

    # --- Attachments

    def _go_to_composer(self) -> None:
        self.sides.go_to_side(self.sides.current)

    def _ask_files_to_attach(self) -> None:
        folder = Path.home()
        # The files are this computer's, wherever the workspace is.
        if self._showing.bench is not None:
            folder = self._showing.bench.main_folder
        title = tr("Attach files")
        ask_files(self.parts.widget, title, folder, self.attaching.attach_files)

    def put_failure_into_message(self, check: str, log: str) -> None:
        """Puts the log of a failed check into the message, as an entry. The user sends it."""
        message = tr("The check “{name}” failed. Its log is attached. Find out why.", name=check)
        self.sides.go_to_side(self.sides.current)
        self.sides.current.composer.put_message_back((Text(message),))
        log_name = tr("log of {name}.txt", name=make_safe_text(check))
        self.attaching.attach_long_text(log, log_name)

    def _connect_failures_of_changes(self, page_name: str, page: Any) -> None:
        if page_name == "changes":
            page.failure_given.connect(self.put_failure_into_message)

    def _open_attached_picture(self, attachment: Attachment) -> None:
        attachment_previews.open_picture_dialog(self.parts, attachment.stored, attachment.name)

    # --- Messages that wait in the queue

    def _find_queue_as_shown(self) -> ShownQueue | None:
        """Returns the queue, unless a message was sent since it was shown: then the index of a
        row in the window would mean another message.
        """
        session = self._showing.conversation
        if session is None:
            return None
        queued_messages = tuple(waiting.parts for waiting in session.queue)
        if queued_messages != self.sides.current.composer.waiting.shown_messages:
            return None
        return session.queue

    def _move_queued_message(self, index: int, step: int) -> None:
        queue = self._find_queue_as_shown()
        if queue is not None:
            queue.move_message(index, index + step)

    def _change_time_of_queued_message(self, index: int, steer: bool) -> None:  # noqa: FBT001 - a slot
        queue = self._find_queue_as_shown()
        if queue is not None:
            queue.set_steering(index, steer=steer)

    def _edit_queued_message(self, index: int) -> None:
        """Takes a waiting message back into the message box. The queue's file would lack it before
        the window's file has the draft, so the window's file has it first.
        """
        queue = self._find_queue_as_shown()
        if queue is None:
            return
        message = list(queue)[index]
        place = self.sides.current.composer.draft_place
        # By this id the next start knows it in the queue, if the program is killed before it left.
        unsent = UnsentMessage(message.parts, draft_id=message.command_id or new_draft_id())
        self.sides.unsent_messages.keep_until_sent(place, unsent)
        self.parts.run_for_window(
            self._write_and_take_back(queue, message),
            then=lambda was_taken: self._put_back_to_edit(place, unsent, was_taken=was_taken),
        )

    async def _write_and_take_back(self, queue: ShownQueue, message: QueuedMessage) -> bool:
        await self.parts.state_file.write_and_wait()
        return await queue.take_back_message(message)

    def _put_back_to_edit(
        self, place: DraftPlace, unsent: UnsentMessage, *, was_taken: bool
    ) -> None:
        if not was_taken:  # It was sent meanwhile.
            self.sides.unsent_messages.forget_message(unsent.draft_id)
            return
        put_message_back = self.build_message_returner(unsent, place)
        put_message_back(None)

    def _discard_queued_message(self, index: int) -> None:
        session = self._showing.conversation
        queue = self._find_queue_as_shown()
        if session is None or queue is None:
            return
        message = list(queue)[index]
        self.parts.run_for_window(
            queue.take_back_message(message),
            then=lambda was_taken: self._tell_removed(session, message, was_taken=was_taken),
        )

    def _tell_removed(
        self, session: ShownSession, message: QueuedMessage, *, was_taken: bool
    ) -> None:
        if not was_taken:  # It was sent meanwhile, which the chat shows.
            return
        send_again = partial(session.send_message, message.parts, command_id=new_draft_id())
        self.parts.notices.show_notice(tr("The message was removed."), act=send_again)

    # --- What the agent does, and what it asks

    def _stop_turn_or_fold(self) -> None:
        session = self.sides.current.steered_session
        if session is None:
            return
        try:
            if session.running in WORKING_STATES:
                session.stop_turn()
                self.turn_stopped.emit(session.id)
            else:
                session.folding.cancel_fold_in_work()
        except HelixError as error:
            self.parts.notices.show_error_notice(error)

    def _retry_and_resume(self) -> None:
        self.parts.requests.retry_wanted.emit()
        session = self._showing.conversation
        if session is None:
            return
        try:
            session.resume_turn()
        except HelixError as error:
            self.parts.notices.show_error_notice(error)

    def _regenerate(self) -> None:
        if self._showing.conversation is not None:
            self.parts.run_for_window(self._showing.conversation.ask_again())

    def _fold_to_markers(self) -> None:
        if self._showing.conversation is not None:
            self.parts.run_for_window(self._showing.conversation.fold_on_request(FoldKind.MARKER))

    def _allow(self, scope: str) -> None:
        card = self.sides.current.approvals.visible_card
        if card is not None:
            card.allow_by_shortcut(scope)

    def _refuse(self) -> None:
        card = self.sides.current.approvals.visible_card
        if card is not None:
            card.refuse_permission()

    def _answer_and_focus_composer(self, number: int, answer: PermissionAnswer) -> None:
        session = self.sides.current.steered_session
        if session is not None:
            session.answer_question(number, answer)
            self.sides.current.composer.text.setFocus()

    def _show_shortcuts_on_answer_buttons(self) -> None:
        """Shows the shortcuts on the current conversation's question, the only one they answer."""
        shortcuts: dict[str, str] = {}
        for name in ACTIONS_THAT_ANSWER:
            shortcuts[name] = self.parts.actions.format_shortcut(name)
        for side in self.sides.sides:
            if side is self.sides.current:
                side.approvals.show_shortcuts_on_answers(shortcuts)
            else:
                side.approvals.show_shortcuts_on_answers({})

    def _open_mode_menu(self) -> None:
        self.sides.current.composer.open_mode_menu()

    def _choose_permission_mode(self, name: str) -> None:
        bench = self._showing.workspace
        if bench is None:
            return
        start_saving = partial(self._start_saving_mode, bench, name)
        if name == ALLOW_ALL and bench.permission_mode != ALLOW_ALL:
            ask_allow_all(self.parts.widget, start_saving)
        elif name == ALLOW_ALL_FOR_AN_HOUR:
            ask_allow_all_for_an_hour(self.parts.widget, start_saving)
        else:
            start_saving()

    def _start_saving_mode(self, bench: ShownWorkspace, name: str) -> None:
        self.parts.run_for_window(self._save_mode(bench, name))

    async def _save_mode(self, bench: ShownWorkspace, name: str) -> None:
        await bench.choose_permission_mode(name)
        self.parts.requests.choices_changed.emit()


@dataclass(frozen=True, slots=True)
class CreatedConversation:
    """A new conversation, and what the user wrote in it after its first message. Nothing is sent
    yet.
    """

    session: ShownSession
    later_messages: Sequence[UnsentMessage]


@dataclass(frozen=True, slots=True)
class NewConversation:
    """A conversation that is created for its first message.

    `awaited_name`: what its side waits for meanwhile. `put_message_back` takes the error, or None
    if the user does not want the message sent.
    """

    sender: MessageSender
    bench: ShownWorkspace
    side: ChatPage
    awaited_name: str
    put_message_back: OnMessageNotSent
    message: UnsentMessage
    parts_for_estimate: tuple[UserPart, ...] = ()  # With the tokens that are sent of each.

    def ask_about_price(self) -> None:
        bench = workbench_of_shown(self.bench)
        if bench is None:  # What it would cost is known only where the workspace is open.
            self.create_and_send()
            return
        self.sender.parts.run_for_window(
            bench.open_draft_session(),
            then=self._create_or_ask_about_price,
            failed=self._give_up,
        )

    def _create_or_ask_about_price(self, draft_session: ShownSession) -> None:
        self.sender.send_or_ask_if_expensive(
            draft_session.context.estimate_cost_of_sending(
                self.parts_for_estimate or self.message.parts
            ),
            send_it=self.create_and_send,
            if_declined=lambda: self._give_up(None),
        )

    def create_and_send(self) -> None:
        self.sender.parts.run_for_window(
            self._create_with_chosen_model(),
            then=self._send_first_message,
            failed=self._give_up,
        )

    async def _create_with_chosen_model(self) -> CreatedConversation:
        """The conversation keeps its model when another one is chosen in another conversation."""
        session = await self.bench.start_users_conversation()
        chosen_model = self.bench.main_model_name
        if chosen_model:
            await self.bench.save_conversation_model(session.id, chosen_model)
        later_messages = await self._move_messages_in_file_to(session)
        return CreatedConversation(session, later_messages)

    async def _move_messages_in_file_to(self, session: ShownSession) -> Sequence[UnsentMessage]:
        """The file has all messages there before the conversation has one of them: after a kill,
        nobody would look for a message of a new conversation in those that there are. Returns those
        that the user wrote after the first one, also while the file was written.
        """
        unsent_messages = self.sender.sides.unsent_messages
        later_messages: list[UnsentMessage] = []
        moving: Sequence[UnsentMessage] = [self.message]
        while moving:
            for message in moving:
                unsent_messages.keep_until_sent((self.bench.id, session.id), message)
            await self.sender.parts.state_file.write_and_wait()
            moving = self._pop_later_messages()
            later_messages.extend(moving)
        return later_messages

    def _pop_later_messages(self) -> Sequence[UnsentMessage]:
        """Returns what the user wrote in this conversation since, and not in one begun later."""
        unsent_messages = self.sender.sides.unsent_messages
        return unsent_messages.pop_unsent_messages(
            (self.bench.id, NEW), awaited_name=self.awaited_name
        )

    def _send_first_message(self, created: CreatedConversation) -> None:
        """Sends the message in any case, and shows the conversation unless the user has
        opened something else meanwhile.
        """
        sender = self.sender
        sides = sender.sides
        session = created.session
        if self.side.awaited_conversation == self.awaited_name:
            self.side.composer.move_draft_to_new_conversation(session.id)
            sides.show_session_if_current(self.bench, session, self.side)

        message = sender.keep_message_to_send(self.bench, session, self.message)
        if message.command_name:
            command = replace(message, not_sent=message.trash_empty_conversation_and_give_back)
            command.expand_command_and_send()
        else:
            message.send_now()

        sides.refresh_conversations()
        sender.send_held_messages(self.bench, session, created.later_messages)

    def _give_up(self, error: HelixError | None) -> None:
        """Puts back the message, and what the user wrote after it for the same conversation."""
        if self.side.awaited_conversation == self.awaited_name:
            self.side.awaited_conversation = ""
            self.side.composer.show_waiting_messages([])
        self.put_message_back(error)
        sides = self.sender.sides
        place_of_new = (self.bench.id, NEW)
        for later_message in self._pop_later_messages():
            sides.add_to_message_and_tell_if_current(place_of_new, later_message.parts)


def is_message_sent(session: ShownSession, draft_id: str) -> bool:
    """Whether the conversation has the message that this draft was, or will have it."""
    if not draft_id:
        return False
    is_queued = any(queued.command_id == draft_id for queued in session.queue)
    return is_queued or draft_id in session.conversation.state.record.commands_of_messages


@dataclass(frozen=True, slots=True)
class FilesToUndo:
    """What changed after a message, and a sentence about it. It is empty if only folders did, or
    nothing. `changes`: what is undone, if the workspace is open here. The host of another finds
    them again.
    """

    changes: Sequence[FileChange] = ()
    description: str = ""


async def find_files_to_undo(workspace: ShownWorkspace, conversation: str, seq: int) -> FilesToUndo:
    """Finds what changed after the message at `seq`."""
    client = client_of_host(workspace)
    if client is None:
        return await _find_files_to_undo_here(workspace, conversation, seq)
    names: list[str] = []
    names_not_undone: list[str] = []
    for file in await client.list_changes_after(conversation, seq):
        names.append(_name_with_cause(file.path, file.by))
        if file.has_conflict:
            names_not_undone.append(make_safe_text(file.path))
    return FilesToUndo(description=_describe_files_to_undo(names, names_not_undone))


async def _find_files_to_undo_here(
    workspace: ShownWorkspace, conversation: str, seq: int
) -> FilesToUndo:
    changes = file_changes_of_shown(workspace, conversation)
    if changes is None:
        return FilesToUndo()
    all_changes = await changes.changes_after_fact(conversation, seq)
    changed_files = [item for item in all_changes if not is_change_of_folder(item.change)]
    conflicting_paths: set[str] = set()
    for planned in await changes.plan_undo(changed_files):
        if planned.how is UndoOutlook.CONFLICT:
            conflicting_paths.add(planned.path)
    names: list[str] = []
    names_not_undone: list[str] = []
    for file in changed_files:
        names.append(_name_with_cause(file.place, file.by))
        if file.path_of_change in conflicting_paths:
            names_not_undone.append(make_safe_text(file.place))
    return FilesToUndo(all_changes, _describe_files_to_undo(names, names_not_undone))


def file_changes_of_shown(workspace: ShownWorkspace, conversation: str) -> FileChanges | None:
    """Returns the file changes of a conversation, if the workspace is open in this process."""
    bench = workbench_of_shown(workspace)
    if bench is None:
        return None
    return bench.file_changes_of(conversation)


def are_checkpoints_off(workspace: ShownWorkspace, conversation: str) -> bool:
    """Whether nothing can be undone because the user turned checkpoints off."""
    changes = file_changes_of_shown(workspace, conversation)
    return changes is not None and changes.checkpoint_progress.state == "off"


def _name_with_cause(path: str, cause: str) -> str:
    if cause == "undo":
        cause = tr("undone")
    else:
        cause = words_for_tool(cause)
    return f"{make_safe_text(path)} ({make_safe_text(cause)})"


def _describe_files_to_undo(
    names_with_causes: Sequence[str], names_not_undone: Sequence[str]
) -> str:
    if not names_with_causes:
        return ""
    description = format_count(
        len(names_with_causes),
        "{n} file changed since this message: ",
        "{n} files changed since this message: ",
    )
    description += shorten_name_list(names_with_causes)
    if names_not_undone:
        description += "\n" + tr("Changed later, so not undone: ")
        description += shorten_name_list(names_not_undone)
    return description


@dataclass(frozen=True, slots=True)
class MessageToSend:
    """A message to send. `not_sent` takes the error, or None if the user does not want it sent."""

    sender: MessageSender
    bench: ShownWorkspace
    session: ShownSession
    parts: tuple[UserPart, ...]
    not_sent: OnMessageNotSent
    steer: bool = False
    # With the tokens that are sent of each part: of a long document, only its outline is.
    parts_for_estimate: tuple[UserPart, ...] = ()
    draft_id: str = ""  # The conversation knows the message by it: see `UserSaid.command`.

    @property
    def command_name(self) -> str:
        """The word after a slash that begins the message."""
        first_part = self.parts[0]
        if not isinstance(first_part, Text):
            return ""
        command = re.match(r"/(\S+)", first_part.text)
        if command is None:
            return ""
        return command[1]

    def expand_command_and_send(self) -> None:
        """Sends the message. A command that we know is replaced by its text first, and one that
        nobody knows is asked about.
        """
        command_name = self.command_name
        commands = self.bench.slash_commands
        known_names = [item.name for item in commands.list_slash_commands(self.session.id)]
        is_for_foreign_agent = bool(self.session.conversation.state.acp_agent)
        looks_like_command = re.fullmatch(r"[a-z][\w-]*", command_name) is not None
        if command_name in known_names:
            expansion = commands.expand_command_message(self.session, self.parts)
            self.sender.parts.run_for_window(
                expansion, then=self._send_expanded_command, failed=self.not_sent
            )
        # A foreign agent has commands of its own, and "/etc/hosts" is a path and no command.
        elif is_for_foreign_agent or not looks_like_command:
            self.send_or_ask_about_price()
        else:
            self._ask_about_unknown_command(known_names)

    def _send_expanded_command(self, expanded_parts: tuple[UserPart, ...]) -> None:
        expanded = replace(self, parts=expanded_parts, steer=False, parts_for_estimate=())
        expanded.send_or_ask_about_price()

    def _ask_about_unknown_command(self, known_names: Sequence[str]) -> None:
        unknown_name = self.command_name
        sentences: list[str] = []
        if unknown_name not in search_suggestions.COMMANDS:
            sentences.append(tr("There is no command /{name}.", name=unknown_name))
        our_name = COMMANDS_ELSEWHERE.get(unknown_name, unknown_name)
        all_names = list(known_names)
        all_names += search_suggestions.COMMANDS
        for similar_name in get_close_matches(our_name, all_names, n=1):
            sentences.append(tr("Did you mean /{name}?", name=similar_name))
        choices = [DialogChoice(tr("Send as text"), self.send_or_ask_about_price)]
        widget = self.sender.parts.widget
        box = ask_to_choose_one(widget, tr("Unknown command"), join_sentences(*sentences), choices)
        box.rejected.connect(partial(self.not_sent, None))

    def send_or_ask_about_price(self) -> None:
        """Sends the message, unless the user is first asked: to summarize a conversation that is
        too long, or to pay a price above the limit.
        """
        needed_summary = self.session.context.estimate_needed_summary()
        if needed_summary is not None:
            self._ask_to_summarize(needed_summary)
            return
        price = self.session.context.estimate_cost_of_sending(self.parts_for_estimate or self.parts)
        saved_dollars = self.session.context.estimate_saving_of_markers()
        cheaper = None
        if saved_dollars:
            cheaper = CheaperSending(saved_dollars, self._fold_and_send)
        self.sender.send_or_ask_if_expensive(
            price,
            send_it=self.send_now,
            if_declined=partial(self.not_sent, None),
            cheaper=cheaper,
        )

    def _fold_and_send(self) -> None:
        """Shortens old outputs to markers, and sends the message then."""
        folding = self.session.fold_on_request(FoldKind.MARKER)
        self.sender.parts.run_for_window(
            folding, then=lambda _done: self.send_now(), failed=self.not_sent
        )

    def _ask_to_summarize(self, needed: NeededSummary) -> None:
        """Says what it takes until a conversation that is too long can go on, and asks."""
        too_long = tr(
            "This conversation is too long for the model: it has {used} tokens. At most {most} of {window} fit, because {reserve} stay free for the reply and a summary.",
            used=format_token_count(needed.used_tokens),
            most=format_token_count(needed.window_tokens - needed.reserved_tokens),
            window=format_token_count(needed.window_tokens),
            reserve=format_token_count(needed.reserved_tokens),
        )
        request_count = format_number(needed.requests)
        if needed.shortens_outputs_first:
            what_it_takes = tr(
                "First, long outputs and messages are shortened. Then about {n} requests summarize the older messages.",
                n=request_count,
            )
        else:
            what_it_takes = tr(
                "Before it can go on, about {n} requests summarize the older messages.",
                n=request_count,
            )
        sentences = [too_long, what_it_takes]
        if needed.dollars:
            price = format_dollars(needed.dollars)
            sentences.append(tr("That costs about {price}.", price=price))
        sentences.append(tr("Nothing is lost: everything can be searched and put back."))
        question = join_sentences(*sentences)
        title = tr("Summarize the older messages?")
        choices = [DialogChoice(tr("Summarize and send"), self.send_now)]
        widget = self.sender.parts.widget
        box = ask_to_choose_one(widget, title, question, choices)
        box.rejected.connect(partial(self.not_sent, None))

    def send_now(self) -> None:
        self.sender.sides.unsent_messages.forget_message(self.draft_id)
        try:
            self.session.send_message(self.parts, steer=self.steer, command_id=self.draft_id)
        except HelixError as error:
            self.not_sent(error)
            return
        self.sender.sides.jump_to_end_of(self.session)

    def resend_edited(self, seq: int) -> None:
        """Sends the message instead of the earlier one at `seq`. What followed the earlier one
        is rewound, its changes to files if wanted.
        """
        price = self.session.context.estimate_cost_of_sending(
            self.parts_for_estimate or self.parts, instead_of=seq
        )
        self.sender.send_or_ask_if_expensive(
            price,
            send_it=partial(self._find_changes_and_resend, seq),
            if_declined=partial(self._edit_again, seq),
        )

    def _find_changes_and_resend(self, seq: int) -> None:
        finding = find_files_to_undo(self.bench, self.session.id, seq)
        resend_or_ask = partial(self._resend_or_ask_about_files, seq)
        # A message is not lost because nobody can say which files it changed.
        self.sender.parts.run_for_window(
            finding, then=resend_or_ask, failed=lambda _error: self._resend(seq)
        )

    def _resend_or_ask_about_files(self, seq: int, changed: FilesToUndo) -> None:
        if changed.description:
            self._ask_about_changed_files(seq, changed)
            return
        if are_checkpoints_off(self.bench, self.session.id):
            self.sender.parts.notices.show_notice(
                tr("Checkpoints are turned off, so files stay as they are.")
            )
        self._resend(seq)

    def _ask_about_changed_files(self, seq: int, changed: FilesToUndo) -> None:
        resend = partial(self._resend, seq)
        undo_and_resend = partial(self._undo_and_resend, seq, changed)
        choices = [
            DialogChoice(tr("Keep these changes"), resend),
            DialogChoice(tr("Undo these changes"), undo_and_resend),
        ]
        title = tr("Send the edited message")
        widget = self.sender.parts.widget
        box = ask_to_choose_one(widget, title, changed.description, choices)
        box.rejected.connect(partial(self._edit_again, seq))

    def _undo_and_resend(self, seq: int, changed: FilesToUndo) -> None:
        self.sender.parts.run_for_window(
            self._undo_changes(seq, changed),
            then=lambda _result: self._resend(seq),
            failed=self.not_sent,
        )

    async def _undo_changes(self, seq: int, changed: FilesToUndo) -> None:
        self.session.refuse_while_running("edit and resend")
        client = client_of_host(self.bench)
        if client is not None:
            undone_there = await client.undo_changes_after(self.session.id, seq)
            self.sender.parts.notices.show_notice(
                describe_undone_elsewhere(undone_there.paths, undone_there.left_alone)
            )
            return
        changes = file_changes_of_shown(self.bench, self.session.id)
        if changes is not None:
            undone = await changes.undo_file_changes(changed.changes, conversation=self.session.id)
            self.sender.pages.changes.undo.report_undone(undone)

    def _resend(self, seq: int) -> None:
        resending = self.session.edit_and_resend(seq, self.parts, command_id=self.draft_id)
        self.sender.parts.run_for_window(
            resending, then=lambda _done: self._note_resent(), failed=self.not_sent
        )

    def _note_resent(self) -> None:
        self.sender.sides.unsent_messages.forget_message(self.draft_id)
        self.sender.sides.jump_to_end_of(self.session)

    def _edit_again(self, seq: int) -> None:
        composer = self.sender.sides.current.composer
        if composer.draft_place == (self.bench.id, self.session.id):
            self.sender.sides.unsent_messages.forget_message(self.draft_id)
            composer.edit_earlier_message(seq, self.parts)
        else:
            self.not_sent(None)

    def trash_empty_conversation_and_give_back(self, error: HelixError | None) -> None:
        """Puts back a command that was to be the first message and was not sent. The conversation
        created for it goes to the trash, unless something else was said there meanwhile.
        """
        facts = self.session.conversation.state.facts
        has_message = any(isinstance(recorded.fact, UserSaid) for recorded in facts)
        if has_message or self.session.queue:
            self._put_command_back(error, (self.bench.id, self.session.id))
        else:
            trashing = self._trash_session_and_move_draft(error)
            place_of_session = (self.bench.id, self.session.id)
            self.sender.parts.run_for_window(
                trashing,
                failed=lambda not_trashed: self._put_command_back(not_trashed, place_of_session),
            )

    async def _trash_session_and_move_draft(self, error: HelixError | None) -> None:
        await self.session.set_trashed()
        place_of_session = (self.bench.id, self.session.id)
        place_of_new = (self.bench.id, NEW)
        drafts = self.sender.sides.current.composer.drafts
        drafts.move_draft(place_of_session, place_of_new)
        self._put_command_back(error, place_of_new)

    def _put_command_back(self, error: HelixError | None, place: DraftPlace) -> None:
        self.sender.sides.refresh_conversations()
        unsent = UnsentMessage(self.parts, draft_id=self.draft_id)
        put_message_back = self.sender.build_message_returner(unsent, place)
        put_message_back(error)
