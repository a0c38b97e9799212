"""Sends the messages of the user, and stops, continues and answers what they started."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject

from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import FileChange, UndoOutlook
from helix_desktop.engine.facts import Attachment, FoldKind, Text, UserPart, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import attachment_previews, search_suggestions
from helix_desktop.gui.changes.undo_dialog import shorten_name_list
from helix_desktop.gui.chat.attachment_reading import AttachmentReader
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.composer import ALLOW_ALL
from helix_desktop.gui.chat.message_drafts import DraftPlace, UnsentMessage
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.conversation_sides import NEW, ConversationSides
from helix_desktop.gui.frame.window_pages import WindowPages
from helix_desktop.gui.question_dialogs import ask_allow_all, ask_files, ask_to_choose_one
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.window_actions import ACTIONS_THAT_ANSWER
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import (
    FileChanges,
    MessageQueue,
    NeededSummary,
    Session,
    Workbench,
)
from helix_desktop.program_settings import ASK_ABOVE

# What other programs call our commands.
COMMANDS_ELSEWHERE = {"compact": "handover", "clear": "new"}
OnMessageNotSent = Callable[[HelixError | None], None]


class MessageSender(QObject):
    """Sends what is written in the message boxes of all sides. What is not sent stays there."""

    def __init__(self, parts: WindowParts, pages: WindowPages, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self.parts = parts
        self.pages = pages
        self.sides = sides
        self._showing = parts.showing
        self.attaching = AttachmentReader(
            parts.runner,
            lambda: parts.showing.bench,
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
        on = self.parts.actions.set_action_handler
        showing = self._showing
        on("compose", self._go_to_composer, when=showing.has_workspace)
        on("attach", self._ask_files_to_attach, when=showing.has_workspace)
        on("mode", self._open_mode_menu, when=showing.has_workspace)
        on("stop", self._stop_turn_or_fold, when=self._can_stop)
        on("resume", self._retry_and_resume, when=self._is_at_rest)
        on("regenerate", self._regenerate, when=self._is_at_rest)
        on("fold-marker", self._fold_to_markers, when=showing.has_conversation)
        on("allow-once", lambda: self._allow("once"), when=self._is_asking)
        on("allow-conversation", lambda: self._allow("conversation"), when=self._is_asking)
        on("allow-always", lambda: self._allow("always"), when=self._is_asking)
        on("refuse", self._refuse, when=self._is_asking)

    def _serve_message_box(self, side: ChatPage) -> None:
        """Connects what is pressed on one side around its message box."""
        composer = side.composer
        actions = self.parts.actions
        connect = partial(self.sides.connect_side, side)
        connect(composer.sent, self.send_or_hold_message)
        connect(composer.resent, self.resend_edited_message)
        connect(composer.mode_chosen, self._choose_permission_mode)
        connect(composer.fold_wanted, actions["fold-marker"].trigger)
        connect(composer.stop_wanted, actions["stop"].trigger)
        connect(composer.attach_wanted, actions["attach"].trigger)
        connect(composer.text.files_given, self.attaching.attach_dropped_data)
        connect(composer.text.long_pasted, self.attaching.attach_long_text)
        composer.attachments.unknown.connect(
            partial(
                attachment_previews.show_thumbnail_or_token_count, self.parts, composer.attachments
            )
        )
        connect(composer.attachments.opened, self._open_attached_picture)
        connect(composer.waiting.moving, self._move_queued_message)
        connect(composer.waiting.steering, self._change_time_of_queued_message)
        connect(composer.waiting.editing, self._edit_queued_message)
        connect(composer.waiting.discarding, self._discard_queued_message)
        connect(side.approvals.answered, self._answer_and_focus_composer)
        connect(side.rewrite_cost.price_wanted, actions["model-price"].trigger)
        connect(side.way_on.settings_wanted, self.parts.requests.settings_wanted.emit)
        connect(side.way_on.going_on, actions["resume"].trigger)

    # --- When the actions can be done

    @property
    def _running(self) -> ConversationActivity:
        if self._showing.session is None:
            return ConversationActivity.IDLE
        return self._showing.session.running

    def _is_asking(self) -> bool:
        return self._running is ConversationActivity.ASKING

    def _is_at_rest(self) -> bool:
        return self._showing.has_conversation() and self._running not in WORKING_STATES

    def _can_stop(self) -> bool:
        if self._running in WORKING_STATES:
            return True
        session = self._showing.session
        return session is not None and bool(session.folding.kind_in_progress)

    # --- Sending

    def send_or_hold_message(self, parts: tuple[UserPart, ...], steer: bool) -> None:  # noqa: FBT001 - a slot
        """Sends a message to the open or a new conversation."""
        bench = self._showing.bench
        session = self._showing.session
        composer = self.sides.current.composer
        if self.sides.current.awaited_conversation:
            self.sides.hold_message_until_open(UnsentMessage(parts, steer))
        elif bench is None:
            composer.put_message_back(parts)
        elif not (bench.main_model_name or self._showing.foreign_agent):
            composer.put_message_back(parts)
            self.parts.requests.model_setup_wanted.emit()
        elif session is not None:
            not_sent = self.build_message_returner(parts)
            MessageToSend(self, bench, session, parts, not_sent, steer).expand_command_and_send()
        else:
            self._begin_conversation_with(bench, parts)

    def _begin_conversation_with(self, bench: Workbench, parts: tuple[UserPart, ...]) -> None:
        """Starts a conversation, unless its first message would cost too much for the user."""
        side = self.sides.current
        give_back = self.build_message_returner(parts)
        # Tells this new conversation from one that the user begins while it is being created.
        waits = f"new {id(parts)}"
        side.awaited_conversation = waits

        def give_first_message_back(error: HelixError | None) -> None:
            if side.awaited_conversation == waits:
                side.awaited_conversation = ""
                side.composer.show_waiting_messages([])
            give_back(error)
            place = (bench.id, NEW)
            for message in self.sides.unsent_messages.pop_unsent_messages(place):
                self.sides.add_to_message_and_tell_if_current(place, message.parts)

        def create_and_send() -> None:
            begun = partial(self._send_first_message, bench, side, parts, waits)
            work = bench.start_users_conversation()
            self.parts.run_for_window(work, then=begun, failed=give_first_message_back)

        def ask_about_price(unbegun: Session) -> None:
            self.send_or_ask_if_expensive(
                unbegun.context.estimate_cost_of_sending(parts),
                create_and_send,
                lambda: give_first_message_back(None),
            )

        if self.parts.settings[ASK_ABOVE]:
            work = bench.open_draft_session()
            self.parts.run_for_window(work, then=ask_about_price, failed=give_first_message_back)
        else:
            create_and_send()

    def _send_first_message(
        self,
        bench: Workbench,
        side: ChatPage,
        parts: tuple[UserPart, ...],
        waits: str,
        session: Session,
    ) -> None:
        """Sends the message in any case, and shows the conversation unless the user has
        opened something else meanwhile.
        """
        unsent = self.sides.unsent_messages.pop_unsent_messages((bench.id, NEW))
        if side.awaited_conversation == waits:
            side.composer.move_draft_to_new_conversation(session.id)
            self.sides.show_session_if_current(bench, session, side)
        message = MessageToSend(self, bench, session, parts, self.build_message_returner(parts))
        if message.command_name:
            give_back = message.trash_empty_conversation_and_give_back
            replace(message, not_sent=give_back).expand_command_and_send()
        else:
            message.send_now()
        self.sides.refresh_conversations()
        self.send_held_messages(bench, session, unsent)

    def send_messages_held_for_workspace(self) -> None:
        """Sends messages that were written before their workspace was open."""
        place = self.sides.current.composer.draft_place
        _workspace, conversation = place
        if conversation == NEW:
            for message in self.sides.unsent_messages.pop_unsent_messages(place):
                self.send_or_hold_message(message.parts, message.is_steering)

    def send_held_messages(
        self, bench: Workbench, session: Session, messages: Sequence[UnsentMessage]
    ) -> None:
        """Sends what was written in a conversation while it was being opened."""
        place = (bench.id, session.id)
        for message in messages:
            not_sent = self.build_message_returner(message.parts, place)
            to_send = MessageToSend(self, bench, session, message.parts, not_sent)
            if not (bench.main_model_name or session.conversation.state.acp_agent):
                self.sides.add_to_message_and_tell_if_current(place, message.parts)
                self.parts.requests.model_setup_wanted.emit()
            elif message.edited:
                to_send.resend_edited(message.edited)
            else:
                replace(to_send, steer=message.is_steering).expand_command_and_send()

    def resend_edited_message(self, seq: int, parts: tuple[UserPart, ...]) -> None:
        bench = self._showing.bench
        session = self._showing.session
        if bench is None or session is None:
            self.sides.hold_message_until_open(UnsentMessage(parts, edited=seq))
        else:
            not_sent = self.build_message_returner(parts)
            MessageToSend(self, bench, session, parts, not_sent).resend_edited(seq)

    def build_message_returner(
        self, parts: tuple[UserPart, ...], place: DraftPlace | None = None
    ) -> OnMessageNotSent:
        """Returns a function that puts an unsent message back into its composer and shows the
        error.
        """
        draft_place = place or self.sides.current.composer.draft_place

        def give_message_back(error: HelixError | None) -> None:
            self.sides.add_to_message_and_tell_if_current(draft_place, parts)
            if error is not None:
                self.parts.notices.show_error_notice(error)

        return give_message_back

    def send_or_ask_if_expensive(
        self,
        price: float,
        send_it: Callable[[], object],
        if_declined: Callable[[], object],
        *,
        folding: tuple[float, Callable[[], object]] | None = None,
    ) -> None:
        """Sends the message, after a question if it is expensive. `folding`: what folding
        first saves, and how.
        """
        # The setting is in cents; 0 means that the user is never asked.
        limit = self.parts.settings[ASK_ABOVE] / 100
        if not limit or price <= limit:
            send_it()
            return
        words = tr(
            "This message would cost about {price}, which is more than your limit of {limit}. Nothing has been sent.",
            price=format_dollars(price), limit=format_dollars(limit),
        )  # fmt: skip
        ways = [(tr("Send"), send_it)]
        if folding:
            saving, fold_and_send = folding
            saved = format_dollars(saving)
            hint = tr("Shortening old outputs first saves about {saved}.", saved=saved)
            words = f"{words} {hint}"
            ways.insert(0, (tr("Shorten first, then send"), fold_and_send))
        box = ask_to_choose_one(self.parts.widget, tr("Send this message?"), words, "", ways)
        box.rejected.connect(if_declined)

    # --- Attachments

    def _go_to_composer(self) -> None:
        self.sides.go_to_side(self.sides.current)

    def _ask_files_to_attach(self) -> None:
        folder = Path.home()
        if self._showing.bench is not None:
            folder = self._showing.bench.main_folder
        title = tr("Attach files")
        ask_files(self.parts.widget, title, folder, self.attaching.attach_files)

    def put_failure_into_message(self, check: str, log: str) -> None:
        """Puts the log of a failed check into the message, as an entry. The user sends it."""
        words = tr("The check “{name}” failed. Its log is attached. Find out why.", name=check)
        self.sides.go_to_side(self.sides.current)
        self.sides.current.composer.put_message_back((Text(words),))
        name = tr("log of {name}.txt", name=make_safe_text(check))
        self.attaching.attach_long_text(log, name)

    def _connect_failures_of_changes(self, name: str, page: Any) -> None:
        if name == "changes":
            page.failure_given.connect(self.put_failure_into_message)

    def _open_attached_picture(self, attachment: Attachment) -> None:
        attachment_previews.open_picture_dialog(self.parts, attachment.stored, attachment.name)

    # --- Messages that wait in the queue

    def _find_queue_as_shown(self) -> MessageQueue | None:
        """Returns the queue, unless a message was sent since it was shown: another one would
        have its place.
        """
        session = self._showing.session
        if session is None:
            return None
        queued = tuple(waiting.parts for waiting in session.queue)
        if queued != self.sides.current.composer.waiting.shown_messages:
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
        queue = self._find_queue_as_shown()
        if queue is not None:
            self.sides.current.composer.put_message_back(queue.take_back_queued(index))

    def _discard_queued_message(self, index: int) -> None:
        session = self._showing.session
        if session is None or self._find_queue_as_shown() is None:
            return
        taken: tuple[UserPart, ...] = session.queue.take_back_queued(index)
        self.parts.notices.show_notice(
            tr("The message was removed."), act=lambda: session.send_message(taken)
        )

    # --- What the agent does, and what it asks

    def _act_on_shown_session(self, act: Callable[[Session], object]) -> None:
        if self._showing.session is not None:
            try:
                act(self._showing.session)
            except HelixError as error:
                self.parts.notices.show_error_notice(error)

    def _stop_turn_or_fold(self) -> None:
        def stop_what_runs(session: Session) -> None:
            if session.running in WORKING_STATES:
                session.stop_turn()
            else:
                session.folding.cancel_fold_in_work()

        self._act_on_shown_session(stop_what_runs)

    def _retry_and_resume(self) -> None:
        self.parts.requests.retry_wanted.emit()
        self._act_on_shown_session(lambda session: session.resume_turn())

    def _regenerate(self) -> None:
        if self._showing.session is not None:
            self.parts.run_for_window(self._showing.session.ask_again())

    def _fold_to_markers(self) -> None:
        if self._showing.session is not None:
            self.parts.run_for_window(self._showing.session.fold_on_request(FoldKind.MARKER))

    def _allow(self, scope: str) -> None:
        card = self.sides.current.approvals.visible_card
        if card is not None:
            card.allow_by_shortcut(scope)

    def _refuse(self) -> None:
        card = self.sides.current.approvals.visible_card
        if card is not None:
            card.refuse_permission()

    def _answer_and_focus_composer(self, number: int, answer: PermissionAnswer) -> None:
        if self._showing.session is not None:
            self._showing.session.answer_question(number, answer)
            self.sides.current.composer.text.setFocus()

    def _show_shortcuts_on_answer_buttons(self) -> None:
        """Shows the shortcuts on the current conversation's question, the only one they answer."""
        shortcuts: dict[str, str] = {}
        for name in ACTIONS_THAT_ANSWER:
            shortcuts[name] = self.parts.actions.format_shortcut(name)
        for side in self.sides.sides:
            shown = shortcuts if side is self.sides.current else {}
            side.approvals.show_shortcuts_on_answers(shown)

    def _open_mode_menu(self) -> None:
        self.sides.current.composer.open_mode_menu()

    def _choose_permission_mode(self, name: str) -> None:
        bench = self._showing.bench
        if bench is None:
            return
        choices_changed = self.parts.requests.choices_changed

        def save_mode() -> None:
            work = bench.choose_permission_mode(name)
            self.parts.run_for_window(work, then=lambda _done: choices_changed.emit())

        if name == ALLOW_ALL and bench.permission_mode != ALLOW_ALL:
            ask_allow_all(self.parts.widget, save_mode)
        else:
            save_mode()


async def find_files_to_undo(
    changes: FileChanges, conversation: str, seq: int
) -> tuple[Sequence[FileChange], str]:
    """Returns what changed after a message, and words about it, or none if only folders did."""
    files = await changes.changes_after_fact(conversation, seq)
    shown = [file for file in files if not is_change_of_folder(file.change)]
    if not shown:
        return files, ""
    names: list[str] = []
    for file in shown:
        cause = file.by
        if cause == "undo":
            cause = tr("undone")
        names.append(f"{make_safe_text(file.place)} ({cause})")
    description = format_count(
        len(names),
        "{n} file changed since this message: ",
        "{n} files changed since this message: ",
    )
    description += shorten_name_list(names)
    conflicting_paths: set[str] = set()
    for planned in await changes.plan_undo(shown):
        if planned.how is UndoOutlook.CONFLICT:
            conflicting_paths.add(planned.path)
    not_undone: list[str] = []
    for file in shown:
        if file.path_of_change in conflicting_paths:
            not_undone.append(make_safe_text(file.place))
    if not_undone:
        names_of_kept = shorten_name_list(not_undone)
        description += "\n" + tr("Changed later, so not undone: ") + names_of_kept
    return files, description


@dataclass(frozen=True, slots=True)
class MessageToSend:
    """A message to send. `not_sent` takes the error, or None if the user does not want it sent."""

    sender: MessageSender
    bench: Workbench
    session: Session
    parts: tuple[UserPart, ...]
    not_sent: OnMessageNotSent
    steer: bool = False

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
        name = self.command_name
        commands = self.bench.slash_commands
        known_names = [item.name for item in commands.list_slash_commands(self.session.id)]
        if name in known_names:

            def send_expanded(parts: tuple[UserPart, ...]) -> None:
                replace(self, parts=parts, steer=False).send_or_ask_about_price()

            work = commands.expand_command_message(self.session, self.parts)
            self.sender.parts.run_for_window(work, then=send_expanded, failed=self.not_sent)
        # A foreign agent has commands of its own, and "/etc/hosts" is a path and no command.
        elif self.session.conversation.state.acp_agent or not re.fullmatch(r"[a-z][\w-]*", name):
            self.send_or_ask_about_price()
        else:
            self._ask_about_unknown_command(known_names)

    def _ask_about_unknown_command(self, known_names: Sequence[str]) -> None:
        name = self.command_name
        sentences: list[str] = []
        if name not in search_suggestions.COMMANDS:
            sentences.append(tr("There is no command /{name}.", name=name))
        our_name = COMMANDS_ELSEWHERE.get(name, name)
        all_names = [*known_names, *search_suggestions.COMMANDS]
        for similar_name in get_close_matches(our_name, all_names, 1):
            sentences.append(tr("Did you mean /{name}?", name=similar_name))
        ways = [(tr("Send as text"), self.send_or_ask_about_price)]
        box = ask_to_choose_one(
            self.sender.parts.widget, tr("Unknown command"), " ".join(sentences), "", ways
        )
        box.rejected.connect(lambda: self.not_sent(None))

    def send_or_ask_about_price(self) -> None:
        def fold_and_send() -> None:
            folding = self.session.fold_on_request(FoldKind.MARKER)
            self.sender.parts.run_for_window(
                folding, then=lambda _done: self.send_now(), failed=self.not_sent
            )

        needed = self.session.context.estimate_needed_summary()
        if needed is not None:
            self._ask_to_summarize(needed)
            return
        saving = self.session.context.estimate_saving_of_markers()
        price = self.session.context.estimate_cost_of_sending(self.parts)
        folding = None
        if saving:
            folding = (saving, fold_and_send)
        self.sender.send_or_ask_if_expensive(
            price, self.send_now, lambda: self.not_sent(None), folding=folding
        )

    def _ask_to_summarize(self, needed: NeededSummary) -> None:
        """Says what it takes until a conversation that is too long can go on, and asks."""
        words = [
            tr(
                "This conversation is too long for the model: {used} of {window} tokens.",
                used=format_token_count(needed.used_tokens),
                window=format_token_count(needed.window_tokens),
            ),
            tr(
                "Before it can go on, about {n} requests summarize the older messages.",
                n=format_number(needed.requests),
            ),
        ]
        if needed.dollars:
            words.append(tr("That costs about {price}.", price=format_dollars(needed.dollars)))
        words.append(tr("Nothing is lost: everything can be searched and put back."))
        ways = [(tr("Summarize and send"), self.send_now)]
        box = ask_to_choose_one(
            self.sender.parts.widget, tr("Summarize the older messages?"), " ".join(words), "", ways
        )
        box.rejected.connect(lambda: self.not_sent(None))

    def send_now(self) -> None:
        try:
            self.session.send_message(self.parts, steer=self.steer)
        except HelixError as error:
            self.not_sent(error)
        self.sender.sides.jump_to_end_of(self.session)

    def resend_edited(self, seq: int) -> None:
        """Sends it instead of an earlier one. What followed that is rewound, its
        changes to files if wanted.
        """
        price = self.session.context.estimate_cost_of_sending(self.parts, instead_of=seq)
        self.sender.send_or_ask_if_expensive(
            price, lambda: self._find_changes_and_resend(seq), lambda: self._edit_again(seq)
        )

    def _find_changes_and_resend(self, seq: int) -> None:
        changes = self.bench.file_changes_of(self.session.id)

        def ask_or_send(changed: tuple[Sequence[FileChange], str]) -> None:
            files, description = changed
            if description:
                self._ask_about_changed_files(seq, files, description)
                return
            if changes.checkpoint_progress.state == "off":
                self.sender.parts.notices.show_notice(
                    tr("Checkpoints are turned off, so files stay as they are.")
                )
            self._resend(seq)

        self.sender.parts.run_for_window(
            find_files_to_undo(changes, self.session.id, seq),
            then=ask_or_send,
            failed=lambda _error: self._resend(seq),
        )

    def _ask_about_changed_files(
        self, seq: int, files: Sequence[FileChange], description: str
    ) -> None:
        ways = [
            (tr("Keep these changes"), lambda: self._resend(seq)),
            (tr("Undo these changes"), lambda: self._undo_and_resend(seq, files)),
        ]
        title = tr("Send the edited message")
        box = ask_to_choose_one(self.sender.parts.widget, title, description, "", ways)
        box.rejected.connect(lambda: self._edit_again(seq))

    def _undo_and_resend(self, seq: int, files: Sequence[FileChange]) -> None:
        session = self.session
        changes = self.bench.file_changes_of(session.id)

        async def undo_changes() -> None:
            session.refuse_while_running("edit and resend")
            undone = await changes.undo_file_changes(files, conversation=session.id)
            self.sender.pages.changes.undo.report_undone(undone)

        self.sender.parts.run_for_window(
            undo_changes(), then=lambda _done: self._resend(seq), failed=self.not_sent
        )

    def _resend(self, seq: int) -> None:
        session = self.session
        self.sender.parts.run_for_window(
            session.edit_and_resend(seq, self.parts),
            then=lambda _done: self.sender.sides.jump_to_end_of(session),
            failed=self.not_sent,
        )

    def _edit_again(self, seq: int) -> None:
        composer = self.sender.sides.current.composer
        if composer.draft_place == (self.bench.id, self.session.id):
            composer.edit_earlier_message(seq, self.parts)
        else:
            self.not_sent(None)

    def trash_empty_conversation_and_give_back(self, error: HelixError | None) -> None:
        """Puts back a command that was to be the first message and was not sent. The conversation
        created for it goes to the trash, unless something else was said there meanwhile.
        """
        sides = self.sender.sides
        session = self.session
        place = (self.bench.id, session.id)
        place_of_new = (self.bench.id, NEW)

        def give_command_back() -> None:
            place_of_command = place
            if not is_begun:
                sides.current.composer.drafts.move_draft(place, place_of_new)
                place_of_command = place_of_new
            sides.refresh_conversations()
            give_back = self.sender.build_message_returner(self.parts, place_of_command)
            give_back(error)

        facts = session.conversation.state.facts
        has_message = any(isinstance(recorded.fact, UserSaid) for recorded in facts)
        is_begun = has_message or bool(session.queue)
        if is_begun:
            give_command_back()
        else:
            self.sender.parts.run_for_window(
                session.set_trashed(), then=lambda _done: give_command_back()
            )
