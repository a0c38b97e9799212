"""`ask` as a client of the process that has the workspace open, here or on another computer.

The host may end, and the line to it may break. The agent goes on over there, or in the next host, and
this command connects again and prints what it has missed. The message is sent once, however often.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from helix_desktop.commands import workspace_access
from helix_desktop.commands.ask_input import (
    is_last_turn_complete,
    read_attached_file,
    read_message_text,
)
from helix_desktop.commands.other_computer import find_row_by_prefix, read_list
from helix_desktop.commands.turn_output import (
    answer_by_allowed_names,
    fact_as_json_line,
    plain_text_of_fact,
    report_end_of_turn,
)
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import escape_control_characters
from helix_desktop.engine import facts, session_events
from helix_desktop.engine.message_identity import is_same_message
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import CLOSED, ConversationActivity
from helix_desktop.errors import ActionRefused, HelixError, NotFound, OwnerEnded
from helix_desktop.workspace_host import host_interface
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_interface import (
    ConversationEvent,
    FactsAdded,
    HistoryReplaced,
    LiveState,
    ReplyDelayed,
    WorkspaceHost,
    new_command_id,
    question_fingerprint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from helix_desktop.console import Console

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
STOP_SECONDS = 5.0
TAKEN_BACK = "your message was taken back"
AT_REST = (ConversationActivity.IDLE, ConversationActivity.FAILED)


class TurnHost(Protocol):
    """Where a turn runs. `becomes_usual`: a model that is named becomes the workspace's if it has none."""

    @property
    def becomes_usual(self) -> bool: ...

    @property
    def sentence_after_break(self) -> str:
        """What is said when the connection ends before the turn."""

    def connect(self) -> AbstractAsyncContextManager[WorkspaceHost]: ...


async def ask_as_client(arguments: Namespace, turn_host: TurnHost, console: Console) -> int:
    """Sends the message to the host, prints the turn, and returns the exit code."""
    text = ""
    if not arguments.resume:
        text = await read_message_text(arguments, console)
    if not arguments.conversation:  # Another agent's tools may have other names.
        workspace_access.check_permission_names(arguments.allow)
    files = [await read_attached_file(file) for file in arguments.attach]
    turn = ClientTurn(arguments, text, files, console, becomes_usual=turn_host.becomes_usual)
    await follow_until_turn_ends(turn, turn_host, console)
    is_done = await report_end_of_turn(turn.ended, turn.refused, console)
    if is_done:
        return 0
    return 1


async def follow_until_turn_ends(turn: ClientTurn, turn_host: TurnHost, console: Console) -> None:
    """Connects again until the turn has ended. What is wrong at first is raised."""
    pause_seconds = FIRST_PAUSE_SECONDS
    last_sentence = ""
    while True:
        sentence = turn_host.sentence_after_break
        try:
            async with turn_host.connect() as host:
                pause_seconds = FIRST_PAUSE_SECONDS
                last_sentence = ""
                await turn.follow_until_end(host)
                return
        except OwnerEnded:
            pass  # The next host goes on.
        except HelixError as error:
            has_begun = bool(turn.conversation)
            if turn.is_refused or not has_begun:
                raise
            sentence = f"Not connected yet: {error.what}"
        if sentence != last_sentence:
            last_sentence = sentence
            await console.print_error(sentence)
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


class ClientTurn:
    """One message to an agent in another process, and what is printed of its turn."""

    def __init__(
        self,
        arguments: Namespace,
        text: str,
        files: list[tuple[str, bytes]],
        console: Console,
        *,
        becomes_usual: bool,
    ) -> None:
        self.conversation = ""
        self.ended: facts.TurnEnded | None = None
        self.refused: list[str] = []
        self.is_refused = False  # The host does not do what this command wants.
        self._arguments = arguments
        self._text = text
        self._files = files
        self._console = console
        self._becomes_usual = becomes_usual
        self._allowed = frozenset(arguments.allow)
        # Each command has one id, so that it is done once, however often it is sent.
        self._start_id = new_command_id()
        self._send_id = new_command_id()
        self._attachments: tuple[facts.Attachment, ...] = ()
        self._followed = FollowedConversation()
        self._is_prepared = False
        # Whether it was handed to a host. One that was killed then may not have received it.
        self._is_sent = False
        self._is_sent_again = False
        # Who has said that the message is kept on the disk there, or recorded.
        self._acknowledged_by: WorkspaceHost | None = None
        self._sending: asyncio.Task[None] | None = None
        # What the message is recorded as. A slash command becomes another text, which the host says.
        self._sent_text = ""
        if not text.startswith("/"):
            self._sent_text = text
        # The facts up to this number were there before the message.
        self._last_seq_before: int | None = None
        self._has_begun = bool(arguments.resume)
        self._printed_reply = ""
        self._sentences_on_waiting: set[str] = set()
        self._answered: set[tuple[int, str]] = set()

    async def follow_until_end(self, host: WorkspaceHost) -> None:
        """Prepares the conversation at this host, and prints its events until the turn has ended."""
        try:
            await self._prepare_conversation(host)
        except HelixError as error:
            self.is_refused = not isinstance(error, OwnerEnded)
            raise
        self._answered.clear()  # The next host may ask the same again, as a turn goes on there.
        tasks = OwnedTasks("turn of a command")
        try:
            while self.ended is None:
                await self._follow_until_end_or_sent_again(host, tasks)
        except asyncio.CancelledError:
            await self._stop_at_host(host)
            raise
        finally:
            self._sending = None
            await tasks.aclose(limit=1)

    async def _follow_until_end_or_sent_again(self, host: WorkspaceHost, tasks: OwnedTasks) -> None:
        """Returns when the turn has ended, or when a message is acknowledged that was sent before.

        What happened to it meanwhile was told to nobody, so the host must tell how things are.
        What is told is handled while the message is sent, too: a slash command may ask before.
        """
        follower = await host.follow_conversation(self.conversation, self._followed.state.seq)
        news = tasks.spawn_task(follower.next_events(), name="wait for events")
        while self.ended is None:
            waited_for: set[asyncio.Task[Any]] = {news}
            if self._sending is not None:
                waited_for.add(self._sending)
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            if self._sending is not None and self._sending.done():
                self._sending.result()  # Raises why the message was not sent.
                self._sending = None
                if self._is_sent_again and not self._has_begun:
                    await follower.close_follower()
                    return
            if not news.done():
                continue
            for event in news.result():
                self._followed.apply_event(event)
                await self._handle_event(host, event, tasks)
            news = tasks.spawn_task(follower.next_events(), name="wait for events")

    # --- Before the turn

    async def _prepare_conversation(self, host: WorkspaceHost) -> None:
        """Makes the conversation ready for the message: finds or starts it, chooses the model,
        and stores the attached files.

        It is called again after each broken connection. What the conversation keeps is done
        once; the model is chosen again, as the next host does not know of it.
        """
        model = self._arguments.model or ""
        if not self._is_prepared:
            await self._find_or_start_conversation(host, model)
        if model:
            await host.run_host_command(
                host_interface.ChooseModel(self.conversation, model, self._becomes_usual)
            )
        if not self._is_prepared:
            self._attachments = await self._store_attachments(host)
            self._is_prepared = True

    async def _find_or_start_conversation(self, host: WorkspaceHost, model: str) -> None:
        """Finds the conversation that was named, or starts one once the host has said that it
        can send this message.
        """
        conversation = ""
        if self._arguments.conversation:
            rows = await read_list(host)
            conversation = find_row_by_prefix(rows, self._arguments.conversation)
        await host.run_host_command(host_interface.CheckMessage(self._text, model, conversation))
        if not conversation:
            start = host_interface.StartConversation()
            started = await host.run_host_command(start, self._start_id)
            conversation = started.conversation
        self.conversation = conversation

    async def _store_attachments(self, host: WorkspaceHost) -> tuple[facts.Attachment, ...]:
        attachments: list[facts.Attachment] = []
        for file_name, content in self._files:
            store = host_interface.StoreContent(file_name, content, self.conversation)
            stored = await host.run_host_command(store)
            attachments += stored.attachments
        return tuple(attachments)

    async def _send_or_continue(
        self, host: WorkspaceHost, live: LiveState, tasks: OwnedTasks
    ) -> None:
        """Sends the message, or resumes the turn if its host was ended.

        Called when all facts have been received: at first, and after each broken connection.
        """
        is_first_connection = self._last_seq_before is None
        if is_first_connection:
            self._last_seq_before = self._followed.state.seq
            if self._arguments.resume:
                self._check_can_be_resumed()
                await self._resume_turn(host)
                return
        if self.ended is not None or self._sending is not None:
            return
        if self._has_begun:
            await self._resume_turn_of_ended_host(host, live)
        elif self._was_taken_back(live):
            self.ended = facts.TurnEnded(facts.TurnEnd.STOPPED, TAKEN_BACK)
        elif self._acknowledged_by is not host:
            # A message that waits at the next host is sent again, too: nobody else begins its turn.
            # The host knows the command by its id, and takes the message once.
            self._is_sent_again = self._is_sent
            self._is_sent = True
            self._sending = tasks.spawn_task(self._send_and_note_receipt(host), name="send")

    async def _resume_turn_of_ended_host(self, host: WorkspaceHost, live: LiveState) -> None:
        """Goes on with the turn if the host was ended meanwhile, and with it the turn."""
        if live.running is ConversationActivity.IDLE:
            await self._resume_turn(host)
        elif live.running is ConversationActivity.FAILED:
            # It failed while nothing was heard of it, and the disk had no room for its end.
            self.ended = facts.TurnEnded(facts.TurnEnd.FAILED, live.why)

    async def _resume_turn(self, host: WorkspaceHost) -> None:
        await host.run_host_command(host_interface.ResumeTurn(self.conversation))

    async def _send_and_note_receipt(self, host: WorkspaceHost) -> None:
        message = host_interface.SendMessage(self.conversation, self._text, self._attachments)
        try:
            result = await host.run_host_command(message, self._send_id)
        except HelixError as error:
            # A host that has ended may have the message. One that refuses it refuses it each time.
            self.is_refused = not isinstance(error, OwnerEnded)
            raise
        self._acknowledged_by = host
        if result.sent_text:
            self._sent_text = result.sent_text

    def _was_taken_back(self, live: LiveState) -> bool:
        """Whether somebody took the message out of the queue while nothing was heard of it."""
        if self._acknowledged_by is None or live.running not in AT_REST:
            return False
        return live.queued is None or not self._has_own_message(live.queued.messages_with_ids())

    def _check_can_be_resumed(self) -> None:
        if is_last_turn_complete(self._followed.state):
            self.is_refused = True
            raise NotFound("There is nothing to continue.", remedy="Nothing was sent.")

    def _has_own_message(self, messages: Iterable[session_events.MessageWithId]) -> bool:
        for parts, command_id in messages:
            if self._is_own_message(parts, command_id):
                return True
        return False

    def _is_own_message(self, parts: tuple[facts.UserPart, ...], command_id: str) -> bool:
        """Others may send equal words. Where a host of an earlier version tells no ids, the words
        decide.
        """
        if command_id:
            return command_id == self._send_id
        if not self._sent_text:
            # The host has not said yet what the slash command has become.
            return True
        # A long text is recorded as an attachment.
        return is_same_message(facts.UserSaid(parts[:1]), [facts.Text(self._sent_text)])

    # --- What is told of the turn

    async def _handle_event(
        self, host: WorkspaceHost, event: ConversationEvent, tasks: OwnedTasks
    ) -> None:
        """Prints or answers one event of the conversation, and notices when the turn has ended."""
        match event:
            case LiveState():
                await self._handle_live_state(host, event, tasks)
            case HistoryReplaced():
                self._last_seq_before = 0
            case FactsAdded():
                for recorded in event.facts:
                    await self._handle_fact(recorded)
            case session_events.QuestionAsked():
                await self._answer_question(host, event)
            case session_events.MessagesQueued() | session_events.ActivityChanged():
                await self._notice_end_without_fact(host, event)
                if isinstance(event, session_events.ActivityChanged):
                    await self._say_what_is_waited_for(event)
            case session_events.ReplyStreamed(delta=TextDelta()):
                await self._print_reply_so_far(self._followed.reply_text)
            case ReplyDelayed() | session_events.FoldProgress():
                await self._say_why_nothing_comes(event)
            case _:
                pass

    async def _say_why_nothing_comes(
        self, event: ReplyDelayed | session_events.FoldProgress
    ) -> None:
        """Says that the model is asked again, or that its request waits for a summary."""
        if isinstance(event, ReplyDelayed):
            await self._console.print_error(session_events.describe_retry(event.seconds, event.why))
            return
        sentence = session_events.describe_wait_for_summary(event)
        if not self._has_begun or not sentence or sentence in self._sentences_on_waiting:
            return
        if sentence == session_events.WAITS_FOR_SUMMARY:
            self._sentences_on_waiting.add(sentence)
        await self._console.print_error(sentence)

    async def _handle_live_state(
        self, host: WorkspaceHost, live: LiveState, tasks: OwnedTasks
    ) -> None:
        """All facts so far have been received, so the message is sent now."""
        await self._print_reply_so_far(live.reply_text)
        await self._send_or_continue(host, live, tasks)
        await self._say_what_is_waited_for(live)
        for asked in live.questions:
            await self._answer_question(host, asked)

    async def _handle_fact(self, recorded: facts.Recorded) -> None:
        """Prints a fact of the turn. The turn begins with this command's own message."""
        if self._last_seq_before is None or recorded.seq <= self._last_seq_before:
            return
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid) and not fact.by:
            self._has_begun |= self._is_own_message(fact.parts, fact.command)
        if not self._has_begun:
            return
        await self._print_fact(recorded)
        if not isinstance(fact, facts.TurnEnded):
            return
        # A turn that ended with its host is continued in the next one: see `_send_or_continue`.
        if fact.why != CLOSED:
            self.ended = fact

    async def _notice_end_without_fact(
        self,
        host: WorkspaceHost,
        event: session_events.MessagesQueued | session_events.ActivityChanged,
    ) -> None:
        """The turn before it has failed or was stopped, so the message was not sent; or another
        client has taken it back; or the end of its turn could not be stored.
        """
        if self.ended is not None or not self._is_sent:
            return
        if isinstance(event, session_events.MessagesQueued):
            is_taken_back = self._has_own_message(event.taken_back_with_ids())
            if is_taken_back and not self._has_begun:
                self.ended = facts.TurnEnded(facts.TurnEnd.STOPPED, TAKEN_BACK)
            return
        if self._has_begun and event.running is ConversationActivity.FAILED:
            self.ended = facts.TurnEnded(facts.TurnEnd.FAILED, event.why)
            return
        is_at_rest = event.running in AT_REST
        if is_at_rest and not self._has_begun and await self._take_back(host):
            why = f"{event.why} Your message was not sent.".strip()
            self.ended = facts.TurnEnded(facts.TurnEnd.FAILED, why)

    async def _say_what_is_waited_for(
        self, activity: LiveState | session_events.ActivityChanged
    ) -> None:
        """Says, once for each reason, why the message waits: the turn before may take long, and may
        ask somebody who is not there.
        """
        if not self._is_sent or self._has_begun or self._text.startswith("/"):
            return
        if activity.running in AT_REST:
            return
        sentence = "The agent is at work on another message. Yours is next."
        if activity.running is ConversationActivity.ASKING:
            asked_for = escape_control_characters(activity.why)
            sentence = f"The turn before yours waits for somebody’s permission: {asked_for}"
        if sentence not in self._sentences_on_waiting:
            self._sentences_on_waiting.add(sentence)
            await self._console.print_error(sentence)

    async def _take_back(self, host: WorkspaceHost) -> bool:
        """Takes the message back if it still waits. Returns whether it did."""
        try:
            await host.run_host_command(
                host_interface.TakeBackMessage(self.conversation, self._text, self._send_id)
            )
        except NotFound:
            return False
        return True

    async def _answer_question(
        self, host: WorkspaceHost, asked: session_events.QuestionAsked
    ) -> None:
        """Answers a question of the turn by what was allowed, once even if it is asked again."""
        # A slash command asks before its message is recorded.
        is_of_own_turn = self._has_begun or self._text.startswith("/")
        fingerprint = question_fingerprint(asked.question)
        key = (asked.number, fingerprint)
        if not is_of_own_turn or key in self._answered:
            return
        self._answered.add(key)
        answer = answer_by_allowed_names(asked.question, self._allowed, self.refused)
        command = host_interface.AnswerQuestion(
            self.conversation, asked.number, fingerprint, answer
        )
        try:
            await host.run_host_command(command)
        except ActionRefused:
            pass  # Somebody else has answered it.
        except OwnerEnded:
            self._answered.discard(key)
            raise

    # --- Printing

    async def _print_reply_so_far(self, reply_text: str) -> None:
        """Prints what is new of the reply that the model is writing."""
        if self._arguments.json or not self._has_begun:
            return
        if not reply_text.startswith(self._printed_reply):
            self._printed_reply = ""  # The model began its reply again.
        new_text = reply_text[len(self._printed_reply) :]
        self._printed_reply = reply_text
        await self._print_text(escape_control_characters(new_text))

    async def _print_fact(self, recorded: facts.Recorded) -> None:
        """Prints a fact as a line of JSON, or as the text that a person reads of it."""
        if self._arguments.json:
            await self._print_text(fact_as_json_line(recorded) + "\n")
            return
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied):
            texts = [part.text for part in fact.parts if isinstance(part, facts.Text)]
            # While the line was broken, nothing of it was streamed to here.
            await self._print_reply_so_far("".join(texts))
            self._printed_reply = ""
        await self._print_text(escape_control_characters(plain_text_of_fact(fact)))

    async def _print_text(self, text: str) -> None:
        if text:
            await self._console.write_output(text.encode("utf-8", "replace"))

    # --- Ctrl+C

    async def _stop_at_host(self, host: WorkspaceHost) -> None:
        """Stops the turn. While the message waits, the turn is somebody else's: takes it back instead."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if self._has_begun:
                    await host.run_host_command(host_interface.StopTurn(self.conversation))
                elif self._is_sent:
                    await self._take_back(host)
        except (HelixError, TimeoutError):
            await self._console.print_error("The agent could not be told to stop.")
