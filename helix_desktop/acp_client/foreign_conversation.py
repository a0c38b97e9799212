"""A conversation in which a foreign agent works: its process, its session, and its turns.

The agent is started with the first message, and again after it ended, crashed or hung.
It resumes its session if it can (`session/load`, `session/resume`). Otherwise, as after
a rewind, a new session gets the conversation up to that point.
"""

import asyncio
import base64
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from helix_desktop.acp_client.acp_agents import ConnectableAgent, RegisterRoute
from helix_desktop.acp_client.agent_choices import (
    MOST_CHOICES,
    AgentChoice,
    parse_agent_choices,
    parse_agent_commands,
)
from helix_desktop.acp_client.agent_connection import (
    START_SECONDS,
    AgentConnection,
    AgentHandlers,
    AgentRefused,
)
from helix_desktop.acp_client.agent_requests import AgentRequests
from helix_desktop.acp_client.turn_recording import TurnRecorder
from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.engine import facts
from helix_desktop.engine.content_recall import format_message
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.ports import ToolSet
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import TaskSpawner, TurnCallbacks
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.turn_loop import turn_end_of_error
from helix_desktop.errors import ActionRefused, HelixError, ModelFailed, NotFound
from helix_desktop.json_values import number_at, object_at, objects_at, text_at, value_at
from helix_desktop.tools.workspace_tools import WorkspaceTools

log = logging.getLogger(__name__)

SILENT_SECONDS = 900.0  # An agent silent for longer is assumed to hang, unless it waits for us.
STOP_SECONDS = 1.0  # How long the agent may take to end its turn when the user stops it.
LONGEST_HISTORY = 120_000  # Only this many last characters of a history are sent to a new session.
HISTORY = "[This conversation goes on in a new session. What was said so far:]\n\n{}\n\n[End of what was said so far.]"
GO_ON = "Go on."
# The words of Anthropic and OpenAI, and those of Google.
_SAYS_INVALID = re.compile(r"invalid_request|INVALID_ARGUMENT|invalid argument", re.IGNORECASE)
_ENDS = {
    "cancelled": facts.TurnEnded(facts.TurnEnd.STOPPED),
    "max_turn_requests": facts.TurnEnded(
        facts.TurnEnd.STEP_LIMIT, "The agent reached its own step limit."
    ),
    "max_tokens": facts.TurnEnded(
        facts.TurnEnd.FAILED, "The agent's reply reached its length limit."
    ),
    "refusal": facts.TurnEnded(facts.TurnEnd.FAILED, "The agent refused to continue."),
}
# How the last reply of a turn ended, by the end of the turn. All other turns end with a whole reply.
_STOP_BY_TURN_END = {
    facts.TurnEnd.STOPPED: facts.Stop.STOPPED,
    facts.TurnEnd.FAILED: facts.Stop.CUT,
}


FindAgent = Callable[[str], Awaitable[ConnectableAgent]]  # Takes the agent's name.


class ForeignConversation:
    """A conversation with a foreign agent, as long as its process lives. `choices` and `commands`
    are what the agent offers, by id and by name. `policy` folds nothing, because the agent alone
    decides what its model is sent.
    """

    def __init__(
        self, name: str, find_agent: FindAgent, spawn: TaskSpawner, policy: facts.PolicySet
    ) -> None:
        self.name = name
        self.choices: dict[str, AgentChoice] = {}
        self.commands: dict[str, str] = {}
        self._find_agent = find_agent
        self._spawn = spawn
        self._policy = policy
        self._connection: AgentConnection | None = None
        self._session = ""
        self._opening_lock = asyncio.Lock()
        self._is_session_new = False  # True until the session gets its first message.
        self._is_session_resumed = False  # Whether the agent has read the session from its record.
        self._running_prompt: asyncio.Task[dict[str, Any]] | None = None
        self._turn: AgentRequests | None = None  # Answers the agent's requests during this turn.
        # True if the agent's requests go through the gateway, which records what they
        # cost.
        self._is_routed = False
        self._is_repeating = False  # True while the agent sends updates that are already recorded.
        self._window = 0  # Unknown until the agent says it.
        self._cost = 0.0  # What the agent says that its session has cost so far.
        self._cost_before = 0.0  # As it was at the end of the last turn.

    @property
    def has_running_process(self) -> bool:
        return self._connection is not None and self._connection.has_live_process

    @property
    def is_working(self) -> bool:
        return self._turn is not None

    async def run_agent_turn(
        self,
        conversation: Conversation,
        kit: WorkspaceTools,
        tools: ToolSet,
        callbacks: TurnCallbacks,
    ) -> facts.TurnEnded:
        """Lets the agent answer, and records and returns the turn's end. `tools` run
        the agent's commands.
        """
        recorder = TurnRecorder(conversation, kit.resources, self.name)
        turn = AgentRequests(conversation, kit, tools, recorder, callbacks.ask, self._spawn)
        self._turn = turn
        self._running_prompt = None
        try:
            callbacks.running(ConversationActivity.THINKING)
            end, usage = await self._work_until_turn_ends(turn)
        except asyncio.CancelledError:
            await finish_even_if_cancelled(self._cancel_turn_or_end_agent())
            end = callbacks.end_when_stopped()
            await finish_even_if_cancelled(self._finish_and_record_turn(turn, end, facts.Usage()))
            raise
        # The user may stop the turn at this moment, too.
        await finish_even_if_cancelled(self._finish_and_record_turn(turn, end, usage))
        return end

    async def _work_until_turn_ends(
        self, turn: AgentRequests
    ) -> tuple[facts.TurnEnded, facts.Usage]:
        """Returns how the turn ended, also if the agent failed."""
        checkpoints = turn.kit.resources.checkpoints
        try:
            await self._record_policy_and_model(turn.conversation)
            if checkpoints is not None:
                await checkpoints.begin_step("", turn.conversation.id, "command")
            answer = await self._prompt_and_restart_dead_agent(turn)
            end = _ENDS.get(text_at(answer, "stopReason"), facts.TurnEnded(facts.TurnEnd.DONE))
            return end, self._usage_since_last_turn(answer)
        except HelixError as error:
            await self.end_agent()
            return turn_end_of_error(error), facts.Usage()
        except OSError as error:
            sentence = f"The agent {self.name} could not be started: {error}."
            return facts.TurnEnded(facts.TurnEnd.FAILED, sentence), facts.Usage()

    async def _finish_and_record_turn(
        self, turn: AgentRequests, end: facts.TurnEnded, usage: facts.Usage
    ) -> None:
        """Stops the agent's commands, and records the rest of the turn and its changes to files."""
        self._turn = None
        await turn.stop_questions_and_commands()
        stop = _STOP_BY_TURN_END.get(end.reason, facts.Stop.END)
        await turn.recorder.finish_turn(stop, usage)
        conversation = turn.conversation
        await self._record_policy_and_model(conversation)
        changes = await turn.kit.collect_unfinished_changes(conversation.id)
        await conversation.append_facts(*changes, end)

    async def _record_policy_and_model(self, conversation: Conversation) -> None:
        """Records the window size of the agent's model, as far as the agent has said it, and the
        policy that folds nothing.
        """
        model = facts.ModelSet(facts.ModelRole.MAIN, self.name, self._window)
        unrecorded_facts: list[facts.Fact] = []
        for fact in (self._policy, model):
            if not conversation.state.has_settings_of_fact(fact):
                unrecorded_facts.append(fact)
        await conversation.append_facts(*unrecorded_facts)

    # --- A turn of the foreign agent

    async def _prompt_and_restart_dead_agent(self, turn: AgentRequests) -> dict[str, Any]:
        """Prompts the agent. If it has died since its last turn, it is started again.

        An agent that was killed may have written its session such that its provider refuses it
        from then on. Gemini CLI repeats results of calls, for example. Then it gets a new session,
        with what was said so far: now, or with the next message if it has done something already.
        """
        was_running = self.has_running_process
        try:
            return await self._prompt_agent(turn)
        except ModelFailed as error:
            is_session_refused = self._is_session_resumed and _is_invalid_request(error)
            if is_session_refused:
                log.info("%s cannot go on with its session, and gets a new one", self.name)
                no_session = facts.Received((), ())
                await turn.conversation.append_facts(no_session)
            if turn.recorder.has_heard_agent:
                if is_session_refused:
                    raise self._failure_of_refused_session() from error
                raise
            if not was_running and not is_session_refused:
                raise
        await self.end_agent()
        return await self._prompt_agent(turn)

    def _failure_of_refused_session(self) -> ModelFailed:
        return ModelFailed(
            f"{self.name} was ended before, and its own record of the session is not complete, so its provider refused the request.",
            remedy="Send another message: the agent then gets a new session with what was said so far.",
        )

    async def _prompt_agent(self, turn: AgentRequests) -> dict[str, Any]:
        """Sends the agent what is new in the conversation, and returns its answer at
        the turn's end.
        """
        conversation = turn.conversation
        connection = await self.open_agent_session(conversation, turn.kit)
        parts_to_send = _parts_since_last_reply(conversation.state.branch)
        if self._is_session_new:
            earlier_messages = await self._begin_new_session(conversation)
            parts_to_send = earlier_messages + parts_to_send
        prompt: list[dict[str, Any]] = []
        for part in parts_to_send:
            block = await self._build_prompt_block(connection, part, turn.kit)
            prompt.append(block)
        self._is_session_new = False
        values = {"sessionId": self._session, "prompt": prompt}
        prompting = connection.ask_agent("session/prompt", values)
        self._running_prompt = self._spawn(prompting, name=f"prompt of {self.name}")
        return await self._wait_for_answer(self._running_prompt, connection, turn)

    async def _begin_new_session(self, conversation: Conversation) -> list[facts.UserPart]:
        """Records the session, and returns what was said so far, for the agent's first prompt."""
        self._cost = 0.0
        self._cost_before = 0.0
        branch = conversation.state.branch
        await conversation.append_facts(facts.Received((), (), session=self._session))
        history = _format_history(branch)
        if not history:
            return []
        return [facts.Text(history)]

    async def _wait_for_answer(
        self,
        running_prompt: asyncio.Task[dict[str, Any]],
        connection: AgentConnection,
        turn: AgentRequests,
    ) -> dict[str, Any]:
        """Waits for the end of the turn. Agents may think for minutes. An agent that sends
        nothing for longer than the limit is assumed to hang.
        """
        while not running_prompt.done():
            silent_seconds = asyncio.get_running_loop().time() - connection.last_heard
            if silent_seconds >= SILENT_SECONDS and not turn.is_waiting:
                raise ModelFailed(
                    f"{self.name} did not respond for {SILENT_SECONDS / 60:.0f} minutes and was stopped."
                )
            seconds_left = max(SILENT_SECONDS - silent_seconds, 1.0)
            await asyncio.wait([running_prompt], timeout=seconds_left)
        return running_prompt.result()

    async def _build_prompt_block(
        self, connection: AgentConnection, part: facts.UserPart, kit: WorkspaceTools
    ) -> dict[str, Any]:
        """Returns a part of a message as the protocol has it. Raises ActionRefused for
        a picture that the agent does not take.
        """
        if isinstance(part, facts.Text):
            return {"type": "text", "text": part.text}
        content = await kit.resources.cache.read_content(part.stored.digest)
        media_type = part.stored.media_type
        if not media_type.startswith("image/"):
            file_text = content.decode("utf-8", "replace")
            text = f"[{part.name}]\n{file_text}\n[end of {part.name}]"
            return {"type": "text", "text": text}
        takes_images = value_at(connection.abilities, "promptCapabilities", "image") is True
        if not takes_images:
            raise ActionRefused(
                f"{self.name} does not accept images.", remedy="Send the message without the image."
            )
        encoded_image = base64.b64encode(content).decode()
        return {"type": "image", "mimeType": media_type, "data": encoded_image}

    def _usage_since_last_turn(self, answer: dict[str, Any]) -> facts.Usage:
        cost = max(0.0, self._cost - self._cost_before)
        self._cost_before = self._cost
        if self._is_routed:  # The gateway records what each request costs.
            return facts.Usage()
        usage = object_at(answer, "usage")
        input_tokens = number_at(usage, "inputTokens")
        output_tokens = number_at(usage, "outputTokens")
        return facts.Usage(input=input_tokens, output=output_tokens, cost=cost)

    # --- Starting the agent's process, and opening or resuming its session

    async def open_agent_session(
        self, conversation: Conversation, kit: WorkspaceTools
    ) -> AgentConnection:
        """Starts the agent if it does not run, and opens the conversation's session."""
        async with self._opening_lock:
            connection = self._connection
            if connection is None or not connection.has_live_process:
                connection = await self._start_agent_again(conversation, kit)
            await self._ensure_session(connection, conversation, kit)
            return connection

    async def _start_agent_again(
        self, conversation: Conversation, kit: WorkspaceTools
    ) -> AgentConnection:
        """Starts the agent, and has it send its requests through the gateway if it can."""
        await self.end_agent()
        connectable = await self._find_agent(self.name)
        handlers = AgentHandlers(
            self._answer_agent_in_turn, self._apply_and_record_update, self._count_request
        )
        connection = await AgentConnection.start_agent(
            connectable.agent, connectable.environment, kit, self._spawn, handlers
        )
        self._connection = connection
        self._is_routed = await self._set_gateway_as_provider(
            connection, conversation.id, connectable.register_route
        )
        return connection

    async def _set_gateway_as_provider(
        self, connection: AgentConnection, conversation: str, register: RegisterRoute
    ) -> bool:
        """Sets the agent's provider to the gateway, which can fold, if the agent allows
        that. Returns whether it was set.
        """
        if connection.abilities.get("providers") is None:
            return False
        with suppress(AgentRefused):  # An agent that refuses a new address is used as it is set up.
            answer = await connection.ask_agent("providers/list", {}, START_SECONDS)
            for provider in objects_at(answer, "providers"):
                current = object_at(provider, "current")
                route = await asyncio.to_thread(register, current, conversation)
                if route is None:
                    continue
                route["providerId"] = text_at(provider, "providerId")
                route["apiType"] = text_at(current, "apiType")
                await connection.ask_agent("providers/set", route, START_SECONDS)
                return True
        return False

    async def _ensure_session(
        self, connection: AgentConnection, conversation: Conversation, kit: WorkspaceTools
    ) -> None:
        """Opens a session for the conversation's messages, unless the agent has it
        open: the one that it had before if it can resume it, or else a new one.
        """
        known_session = _find_agent_session_id(conversation)
        is_open_session_right = self._is_session_new or known_session == self._session
        if self._session and is_open_session_right:
            return
        self._session = ""  # Until it is opened, its updates may come under any name.
        values = _session_folders(kit)
        if known_session:
            values_for_resuming = {"sessionId": known_session} | values
            if await self._resume_if_possible(connection, conversation, values_for_resuming):
                return
        answer = await connection.ask_agent("session/new", values, START_SECONDS)
        self._is_session_new = True
        session = text_at(answer, "sessionId")
        await self._set_session_and_resend_choices(connection, conversation, session, answer)

    async def _resume_if_possible(
        self, connection: AgentConnection, conversation: Conversation, values: dict[str, Any]
    ) -> bool:
        """Returns whether the agent resumed the session. What it repeats is recorded already."""
        methods: list[str] = []
        if object_at(connection.abilities, "sessionCapabilities").get("resume") is not None:
            methods.append("session/resume")
        if connection.abilities.get("loadSession") is True:
            methods.append("session/load")
        session = values["sessionId"]
        self._is_repeating = True
        try:
            for method in methods:
                with suppress(AgentRefused):  # The agent may have lost the session.
                    answer = await connection.ask_agent(method, values, START_SECONDS)
                    await self._set_session_and_resend_choices(
                        connection, conversation, session, answer
                    )
                    self._is_session_resumed = True
                    return True
        finally:
            self._is_repeating = False
        return False

    async def _set_session_and_resend_choices(
        self,
        connection: AgentConnection,
        conversation: Conversation,
        session: str,
        answer: dict[str, Any],
    ) -> None:
        """Chooses again what the user has chosen, if the agent still offers it."""
        self._session = session
        self.choices = parse_agent_choices(answer)
        for identity, value in conversation.state.agent_choices.items():
            choice = self.choices.get(identity)
            if choice is None or choice.current == value:
                continue
            with suppress(NotFound, AgentRefused):
                await self._send_choice(connection, identity, value)

    def get_agent_choice(self, option_id: str) -> AgentChoice:
        choice = self.choices.get(option_id)
        if choice is None:
            available = ", ".join(self.choices) or "none"
            raise NotFound(
                f"The agent {self.name} has no option {option_id[:80]}.",
                remedy=f"Available: {available}.",
            )
        return choice

    async def choose_agent_option(
        self, conversation: Conversation, option_id: str, value: str
    ) -> None:
        """Chooses a mode, a model or another option, also for later starts of the agent."""
        if self._connection is not None and self._session:
            await self._send_choice(self._connection, option_id, value)
        await conversation.append_facts(facts.ConversationChanged(choice=f"{option_id}={value}"))

    async def _send_choice(self, connection: AgentConnection, option_id: str, value: str) -> None:
        choice = self.get_agent_choice(option_id)
        method, values = choice.request_for_value(value)
        params = {"sessionId": self._session} | values
        answer = await connection.ask_agent(method, params, START_SECONDS)
        self.choices[option_id] = replace(choice, current=value)
        # Setting one choice may change the values that another one offers.
        self._add_choices(answer)

    def _add_choices(self, offer: dict[str, Any]) -> None:
        for option_id, choice in parse_agent_choices(offer).items():
            if option_id in self.choices or len(self.choices) < MOST_CHOICES:
                self.choices[option_id] = choice

    async def _cancel_turn_or_end_agent(self) -> None:
        """Cancels the turn. An agent that does not end it soon is ended, and later resumed."""
        if self._turn is not None:
            await self._turn.stop_questions_and_commands()
        connection = self._connection
        prompt = self._running_prompt
        if connection is not None and prompt is not None and not prompt.done():
            await connection.notify_agent("session/cancel", {"sessionId": self._session})
            await asyncio.wait([prompt], timeout=STOP_SECONDS)
        if prompt is None or not prompt.done():
            await self.end_agent()

    async def end_agent(self) -> None:
        """Ends the agent's process. The conversation's next message starts it again."""
        connection = self._connection
        self._connection = None
        self._session = ""
        self._is_session_new = False
        self._is_session_resumed = False
        if connection is not None:
            await connection.end_agent_process()

    # --- Answering the agent's requests, and recording its updates

    async def _answer_agent_in_turn(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._turn is None:
            raise ActionRefused("The agent may do something only while it answers a message.")
        if self._is_of_other_session(text_at(params, "sessionId")):
            raise ActionRefused(
                "The agent asked this for another conversation, so it was not done here."
            )
        self._turn.recorder.has_heard_agent = True
        return await self._turn.answer_agent(method, params)

    def _is_of_other_session(self, session: str) -> bool:
        """Whether something concerns another session, which is not this conversation's. What names
        none is this one's, and so is all that comes before the agent has named its session.
        """
        return bool(session and self._session and session != self._session)

    def _count_request(self, size: int) -> None:
        if self._turn is not None:
            self._turn.recorder.add_size(size)

    async def _apply_and_record_update(
        self, session: str, update: dict[str, Any], size: int
    ) -> None:
        """Takes over what the agent says of itself, and records what it says in the
        turn.
        """
        if self._is_of_other_session(session):
            self._count_request(size)
            return
        self._apply_update_to_agent(update)
        if self._turn is not None and not self._is_repeating:
            await self._turn.recorder.record_session_update(update, size)

    def _apply_update_to_agent(self, update: dict[str, Any]) -> None:
        """Takes over the agent's choices, commands, window and cost, as far as the update
        names them.
        """
        mode = text_at(update, "currentModeId")
        if mode and "mode" in self.choices:
            self.choices["mode"] = replace(self.choices["mode"], current=mode)
        self._add_choices(update)
        if text_at(update, "sessionUpdate") == "available_commands_update":
            self.commands = parse_agent_commands(update)
        self._window = number_at(update, "size") or self._window
        cost = value_at(update, "cost", "amount")
        if isinstance(cost, int | float) and 0 <= cost < 1e6:
            self._cost = float(cost)


def _session_folders(kit: WorkspaceTools) -> dict[str, Any]:
    """Returns the parameters that tell the agent where it works: the workspace's folders."""
    roots = kit.resources.roots
    roots.resolve_path(".")  # Raises ActionRefused if the workspace has no folder.
    folders = [str(root) for root in roots.folders]
    values: dict[str, Any] = {"cwd": folders[0], "mcpServers": []}
    if len(folders) > 1:
        values["additionalDirectories"] = folders[1:]
    return values


def _is_invalid_request(error: ModelFailed) -> bool:
    """Whether an agent says that its provider found its request invalid, and not, for example,
    that the provider cannot be reached.
    """
    if not isinstance(error, AgentRefused):
        return False
    return _SAYS_INVALID.search(error.what) is not None


def _find_agent_session_id(conversation: Conversation) -> str:
    """Returns the id of the session of this branch's messages. Empty after a rewind or
    in a fork.
    """
    for recorded in reversed(conversation.state.facts):
        if isinstance(recorded.fact, facts.Received):
            return recorded.fact.session
        if isinstance(recorded.fact, facts.Rewound | facts.ConversationStarted):
            break
    return ""


def _parts_since_last_reply(branch: ConversationBranch) -> list[facts.UserPart]:
    """Returns what the user has said since then. If that is nothing, as when a stopped turn is
    continued, the agent is told to go on.
    """
    last_reply = 0
    if branch.steps:
        last_reply = branch.steps[-1]
    parts: list[facts.UserPart] = []
    for seq in branch.order:
        fact = branch.message_at(seq).fact
        if seq > last_reply and isinstance(fact, facts.UserSaid):
            parts += fact.parts
    if not parts:
        parts.append(facts.Text(GO_ON))
    return parts


def _format_history(branch: ConversationBranch) -> str:
    """Returns the conversation up to its last reply as text, for a new session of the agent."""
    if not branch.steps:
        return ""
    last_reply = branch.steps[-1]
    lines: list[str] = []
    for seq in branch.order:
        message = branch.message_at(seq)
        is_unanswered = seq > last_reply and isinstance(message.fact, facts.UserSaid)
        if not is_unanswered:  # What is unanswered is sent as the message itself.
            lines.append(format_message(branch, message, {}))
    text = "\n".join(lines)
    return HISTORY.format(text[-LONGEST_HISTORY:])
