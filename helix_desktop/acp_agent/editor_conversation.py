"""One conversation in an editor: its updates in order, its questions, and the turn that
the editor awaits.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp import RequestError, schema
from acp.connection import Connection
from acp.helpers import text_block, tool_content, update_agent_message_text
from acp.utils import notify_model, serialize_params

from helix_desktop.acp_agent import conversation_options, conversation_updates
from helix_desktop.acp_agent.agent_description import SIGN_IN
from helix_desktop.acp_agent.conversation_updates import ClientAbilities, ConversationUpdates
from helix_desktop.console import escape_control_characters
from helix_desktop.engine import session_events
from helix_desktop.engine.code_fences import wrap_in_code_fence
from helix_desktop.engine.facts import TurnEnd, TurnEnded, UserPart
from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_text
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.json_values import text_at, value_at
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host.host_interface import new_command_id

# An editor that takes longer to send a file's text is not asked for files again.
READ_SECONDS = 2.0
_ENDS = {
    TurnEnd.DONE: "end_turn",
    TurnEnd.STOPPED: "cancelled",
    TurnEnd.STEP_LIMIT: "max_turn_requests",
}
_SCOPES = {
    "once": "Allow once",
    "conversation": "Allow in this conversation",
    "always": "Always allow",
    "ask": "Approve and ask before changes",
    "edits": "Approve, allow edits",
    "all": "Approve, allow everything",
}
# Error codes of the protocol.
AUTHENTICATION_REQUIRED = -32000
INTERNAL_ERROR = -32603
log = logging.getLogger(__name__)
SpawnTask = Callable[..., asyncio.Task[Any]]


class EditorConversation:
    """An open conversation. It is not stored before its first message: opening a panel
    leaves nothing behind.
    """

    def __init__(
        self,
        bench: Workbench,
        identity: str,
        abilities: ClientAbilities,
        client: Connection,
        spawn: SpawnTask,
        beginning: asyncio.Lock,
    ) -> None:
        """`beginning`: held while the conversation is created. An editor may close it meanwhile
        and write to it again, so it is shared by all objects with this id.
        """
        self.id = identity
        self._bench = bench
        self._beginning = beginning
        # It stays so: a conversation that was deleted meanwhile does not begin again.
        self._was_stored = bench.conversation_row(identity) is not None
        self._client = client
        self._abilities = abilities
        self._spawn = spawn
        self._updates = ConversationUpdates(bench, identity, abilities)
        # Events to be sent to the editor. A future among them is done once all before it are sent.
        self._waiting: asyncio.Queue[session_events.Event | asyncio.Future[None]] = asyncio.Queue()
        # Done when the agent rests again. None while the editor awaits no turn.
        self._turn_is_over: asyncio.Future[None] | None = None
        self._turn_end: TurnEnded | None = None
        self._is_answering = False
        # The session of the answer. None while it is being opened: what runs in it then is
        # somebody else's turn.
        self._answering_session: Session | None = None
        # Of the editor's last message.
        self._command_id = ""
        self._was_taken_back = False
        self._is_cancelled = False
        self._is_closed = False
        # What the editor was told last.
        self._mode = bench.permission_mode
        self._commands: dict[str, Any] = {}
        self._sending = spawn(self._send_waiting_events(), name="updates for an editor")
        if abilities.reads_files:
            bench.kit.resources.editor_files[identity] = self._read_editor_file

    @property
    def is_begun(self) -> bool:
        """Whether it is stored, by this object or by another one with this id."""
        return self._was_stored or self._bench.conversation_row(self.id) is not None

    async def open_session(self) -> Session:
        """Opens the conversation's session, and creates the conversation if it is new."""
        async with self._beginning:
            if self.is_begun:
                return await self._bench.open_session(self.id)
            model = self._bench.model_of_conversation(self.id)
            session = await self._bench.start_users_conversation(self.id)
            self._was_stored = True
            if model != self._bench.main_model_name:
                await self._bench.save_conversation_model(self.id, model)
            return session

    def close(self) -> None:
        """Stops the turn of a conversation that the editor closed, and keeps what was said."""
        self._is_closed = True
        self.cancel_turn()
        self._sending.cancel()
        # It hears no more events, so the turn's own end would not answer the editor's message.
        self._end_awaited_turn()
        self._bench.kit.resources.editor_files.pop(self.id, None)

    async def run_turn(self, parts: tuple[UserPart, ...]) -> str:
        """Sends a message, and returns the protocol's reason for the end of the turn
        once all updates are sent.
        """
        if self._is_answering:
            raise InvalidInput("The agent is still answering the last message.", remedy="Wait until the agent has finished, or cancel the answer first.")  # fmt: skip
        # This comes before all that is awaited: the next message may be here already, or the
        # cancellation of this one.
        self._is_answering = True
        self._is_cancelled = False
        self._turn_end = None
        self._command_id = new_command_id()
        self._was_taken_back = False
        try:
            if self.is_begun:
                await self.open_session()  # The session must be open to find the model.
            if not self._bench.model_of_conversation(self.id):
                raise RequestError(
                    AUTHENTICATION_REQUIRED,
                    f"No model has been chosen for {self._bench.name}. {SIGN_IN}",
                )
            session = await self.open_session()
            self._answering_session = session
            message = await self._bench.slash_commands.expand_command_message(session, parts)
            await self._tell_of_cold_cache(session)
            # The editor may cancel while the conversation is opened, or while a slash command runs
            # its shell lines.
            if self._is_cancelled:
                return "cancelled"
            self._turn_is_over = asyncio.get_running_loop().create_future()
            self._updates.own_messages += 1
            session.send_message(message, command_id=self._command_id)
            await self._turn_is_over
            if self._is_closed and not self._was_taken_back:
                await session.wait_until_idle()  # A stopped turn puts its message back.
            self._take_back_unsent_message(session)
        finally:
            self._turn_is_over = None
            self._answering_session = None
            self._is_answering = False

        await self._wait_until_updates_are_sent()
        turn_end = self._turn_end or TurnEnded(TurnEnd.STOPPED)
        if turn_end.reason is TurnEnd.FAILED:
            sentence = turn_end.why or "The turn failed."
            raise RequestError(INTERNAL_ERROR, sentence, {"cause": turn_end.cause})
        return _ENDS.get(turn_end.reason, "max_turn_requests")

    async def _tell_of_cold_cache(self, session: Session) -> None:
        """Tell an editor that shows notices what the message costs, if that is more by now."""
        if not self._abilities.notices:
            return
        price = session.context.next_message_cost()
        notice = conversation_updates.build_cold_cache_notice(price, time.time())
        if notice is not None:
            await self.send_update(notice)

    async def _wait_until_updates_are_sent(self) -> None:
        """The editor must have all updates before it hears of a turn's end. A closed conversation
        sends no more.
        """
        loop = asyncio.get_running_loop()
        all_sent: asyncio.Future[None] = loop.create_future()
        self._waiting.put_nowait(all_sent)
        await asyncio.wait({all_sent, self._sending}, return_when=asyncio.FIRST_COMPLETED)

    def cancel_turn(self) -> None:
        """Stops the turn that the editor awaits. A turn that somebody else started goes on."""
        self._is_cancelled = True
        session = self._answering_session
        if session is None:
            return
        if session.conversation.state.branch.turn.running:
            self._take_back_unsent_message(session)
        if self._was_taken_back:
            self._end_awaited_turn()  # The message waited for the end of somebody else's turn.
        else:
            session.stop_turn()

    def _take_back_unsent_message(self, session: Session) -> None:
        """Takes the editor's message out of the queue if it is still there: it waits for another
        turn, or its own ended before it was recorded, because it was cancelled early or a hook
        blocked it. Editors show no queue, and have its text. It would be done before their next
        message, or hold that back for ever.
        """
        for index, waiting in enumerate(session.queue):
            if waiting.command_id == self._command_id:
                session.queue.take_back_queued(index)
                self._updates.own_messages -= 1
                self._was_taken_back = True
                return

    def queue_event_for_editor(self, event: session_events.Event) -> None:
        """Queues an event of this conversation, to be sent after the earlier ones."""
        if isinstance(event, session_events.FactAppended):
            fact = event.recorded.fact
            if isinstance(fact, TurnEnded):
                self._turn_end = fact
        self._waiting.put_nowait(event)
        if isinstance(event, session_events.ActivityChanged):
            self._end_turn_when_idle(event)

    def _end_turn_when_idle(self, event: session_events.ActivityChanged) -> None:
        """Ends the turn that the editor awaits, even if its end could not be stored."""
        is_idle = event.running is session_events.ConversationActivity.IDLE
        has_failed = event.running is session_events.ConversationActivity.FAILED
        if not is_idle and not has_failed:
            return
        if has_failed and self._turn_end is None:
            self._turn_end = TurnEnded(TurnEnd.FAILED, event.why)
        self._end_awaited_turn()

    def _end_awaited_turn(self) -> None:
        if self._turn_is_over is not None and not self._turn_is_over.done():
            self._turn_is_over.set_result(None)

    async def send_update(self, update: Any) -> None:
        """Sends an update of the SDK, or a dict as it is."""
        if isinstance(update, dict):
            params = {"sessionId": self.id, "update": update}
            await self._client.send_notification("session/update", params)
            return
        notification = schema.SessionNotification(session_id=self.id, update=update)
        await notify_model(self._client, "session/update", notification)

    async def send_history_to_editor(self) -> None:
        """Sends everything that was said on the current branch."""
        session = await self.open_session()
        for recorded in session.conversation.state.facts_on_path():
            async for update in self._updates.updates_of_fact(recorded.fact, is_replay=True):
                await self.send_update(update)
        next_try = session.turns.next_try
        if next_try is not None:
            await self._send_event(session_events.ReplyStreamed(self.id, next_try))
        await self.send_commands_and_usage()

    async def send_commands_and_usage(self) -> None:
        self._commands = {}
        await self.send_commands_if_changed()
        for update in self._updates.usage_updates():
            await self.send_update(update)

    async def send_commands_if_changed(self) -> None:
        """Sends the slash commands if they changed, as an MCP server may list its prompts late."""
        commands = conversation_options.build_commands_update(self._bench)
        if commands != self._commands:
            self._commands = commands
            await self.send_update(commands)

    async def send_options_if_mode_changed(self) -> None:
        """Sends the mode and all options if the mode changed, in the window or because
        a plan was approved.
        """
        if self._mode == self._bench.permission_mode:
            return
        self._mode = self._bench.permission_mode
        for update in conversation_options.build_mode_and_option_updates(self._bench, self.id):
            await self.send_update(update)

    async def _send_waiting_events(self) -> None:
        """Sends one event after another, so that the editor gets them in order."""
        while True:
            event_or_future = await self._waiting.get()
            if isinstance(event_or_future, asyncio.Future):
                event_or_future.set_result(None)
                continue
            try:
                await self._send_event(event_or_future)
            except (HelixError, ConnectionError) as error:
                log.info("an update could not be sent to an editor: %s", error)

    async def _send_event(self, event: session_events.Event) -> None:
        async for update in self._updates.updates_of_event(event):
            is_whole_output = isinstance(event, session_events.ToolPrinted) and update.content
            if is_whole_output and not self._waiting.empty():
                continue  # A later update replaces it.
            await self.send_update(update)
        if isinstance(event, session_events.QuestionAsked):
            # By now, the editor has received the call that the question is about.
            self._spawn(self._ask_editor(event), name="question for an editor")
        if isinstance(event, session_events.ActivityChanged):
            await self.send_options_if_mode_changed()

    # --- Asking the editor's user, and reading the editor's unsaved files

    async def _ask_editor(self, asked: session_events.QuestionAsked) -> None:
        """Asks the editor's user. The window shows the question as well, and the first
        answer counts.
        """
        answer = await self._ask_editor_or_deny(asked.question)
        if self._is_closed:
            return  # The window's user answers, if its turn goes on.
        session = self._bench.sessions.find_open_session(self.id)
        if session is not None and answer is not None:
            session.answer_question(asked.number, answer)

    async def _ask_editor_or_deny(self, question: PermissionQuestion) -> PermissionAnswer | None:
        """Returns the answer of the editor's user, which is no if the editor fails to ask."""
        try:
            if question.form:
                return await self._ask_editor_to_fill_form(question)
            return await self._ask_editor_for_permission(question)
        except (RequestError, ConnectionError, ValueError) as error:
            log.info("an editor did not answer a question: %s", error)
            return PermissionAnswer(allowed=False, words="The editor could not show the question.")

    async def _ask_editor_for_permission(
        self, question: PermissionQuestion
    ) -> PermissionAnswer | None:
        options: list[schema.PermissionOption] = []
        for scope in question.scopes:
            options += _offer_scope(question, scope)
        allowing_ids = {option.option_id for option in options}
        name_of_no = "Deny"
        if question.plan:
            name_of_no = "Keep planning"
        deny = schema.PermissionOption(option_id="deny", name=name_of_no, kind="reject_once")
        options.append(deny)

        card = _build_question_card(question)
        request = schema.RequestPermissionRequest(
            session_id=self.id, tool_call=card, options=options
        )
        params = serialize_params(request)
        answer = await self._client.send_request("session/request_permission", params)
        chosen_id = text_at(answer, "outcome", "optionId")
        was_chosen = text_at(answer, "outcome", "outcome") == "selected"
        if not was_chosen or chosen_id not in allowing_ids:
            return PermissionAnswer(allowed=False)
        chosen_scope, _, rule_number = chosen_id.partition(":")
        return PermissionAnswer(allowed=True, scope=chosen_scope, rule=int(rule_number))

    async def _ask_editor_to_fill_form(
        self, question: PermissionQuestion
    ) -> PermissionAnswer | None:
        """Shows a form of an MCP server in the editor, or leaves it to the window if
        the editor has no forms.
        """
        title = mark_on_one_line(question.title)
        if not self._abilities.fills_forms:
            notice = f"\n\n*{title} This editor shows no forms. Answer in Helix Desktop's window, or cancel.*\n\n"
            await self.send_update(update_agent_message_text(notice))
            return None
        form_schema = json.loads(question.form)
        request = {
            "sessionId": self.id,
            "mode": "form",
            "message": title,
            "requestedSchema": form_schema,
        }
        answer = await self._client.send_request("elicitation/create", request)
        if text_at(answer, "action") != "accept":
            return PermissionAnswer(allowed=False)
        filled_fields = value_at(answer, "content") or {}
        return PermissionAnswer(allowed=True, values=json.dumps(filled_fields))

    async def _read_editor_file(self, path: Path) -> str | None:
        """Returns a file's text as the editor has it, saved or not. None if the editor
        does not return it.
        """
        try:
            async with asyncio.timeout(READ_SECONDS):
                params = {"sessionId": self.id, "path": str(path)}
                answer = await self._client.send_request("fs/read_text_file", params)
        except TimeoutError:
            self._bench.kit.resources.editor_files.pop(self.id, None)
            return None
        except (RequestError, ConnectionError):
            return None
        text = value_at(answer, "content")
        if not isinstance(text, str):
            return None
        return text


def _offer_scope(question: PermissionQuestion, scope: str) -> list[schema.PermissionOption]:
    """Returns one option for each rule that would allow this and more, or one without a rule."""
    rules: list[str] = []
    if scope in ("conversation", "always"):
        rules = [mark_text(rule, question.program_names) for rule in question.rules]
    scope_name = _SCOPES.get(scope, scope)
    kind: schema.PermissionOptionKind = "allow_always"
    if scope in ("once", "ask"):
        kind = "allow_once"
    if not rules:
        rules = [""]
    options = []
    for number, rule in enumerate(rules):
        name = f"{scope_name} {rule}".strip()
        option_id = f"{scope}:{number}"
        options.append(schema.PermissionOption(option_id=option_id, name=name, kind=kind))
    return options


def _build_question_card(question: PermissionQuestion) -> schema.ToolCallUpdate:
    """Returns the card on which the editor shows what the agent wants to do, and why it asks."""
    kind: schema.ToolKind
    if question.plan:
        kind = "switch_mode"
        # The plan is Markdown, which the editor draws.
        text = escape_control_characters(question.preview)
    else:
        kind = conversation_updates.kind_of_call(question.call)
        preview = mark_text(question.preview, question.program_names)
        text = wrap_in_code_fence(preview, is_exact=True)
    reason = _reason_as_markdown(question)
    if reason:
        text = f"{reason}\n\n{text}"
    title = mark_on_one_line(question.title)
    if not title:
        title = conversation_updates.title_of_call(question.call)
    content = tool_content(text_block(text))
    return schema.ToolCallUpdate(
        tool_call_id=question.call.id,
        title=title,
        kind=kind,
        status="pending",
        content=[content],
    )


def _reason_as_markdown(question: PermissionQuestion) -> str:
    """Returns why the agent asks. The reason may quote a path, in which an editor would read
    some characters as Markdown.
    """
    reason = mark_on_one_line(question.why_as_sentence)
    return re.sub(r"([^\w\s])", r"\\\1", reason)
