"""Translates facts and events into the protocol's updates. Only this module knows its version."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import field
from typing import Any

from acp import helpers, schema

from helix_desktop.engine import content_recall, facts, session_events
from helix_desktop.engine.code_fences import wrap_in_code_fence
from helix_desktop.engine.context_usage import NextMessageCost
from helix_desktop.engine.messages import ReasoningDelta, RetryDelay, TextDelta
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import EDITS, RECALLS, ToolName
from helix_desktop.errors import HelixError, shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_object, value_at
from helix_desktop.workbench import Workbench

SHOWN_BYTES = 8_000  # At most this many bytes of one output are sent to the editor.
LARGEST_DIFF = 400_000  # A file of more bytes than this is not shown as a difference.
TITLE = 80
LEAST_DOLLARS_OF_COLD_CACHE = 0.01  # A smaller difference is not worth a notice.
_KINDS: dict[str, schema.ToolKind] = {
    ToolName.READ_FILE: "read",
    ToolName.READ_DOCUMENT: "read",
    ToolName.LIST_FILES: "read",
    ToolName.GLOB_FILES: "search",
    ToolName.SEARCH_FILES: "search",
    ToolName.RUN_COMMAND: "execute",
    ToolName.FETCH_URL: "fetch",
    ToolName.DELEGATE: "think",
    ToolName.SET_TODO: "think",
    **dict.fromkeys(EDITS, "edit"),
    **dict.fromkeys(RECALLS, "read"),
}
_PLAN: dict[str, schema.PlanEntryStatus] = {
    "open": "pending",
    "doing": "in_progress",
    "done": "completed",
}


@dataclass(frozen=True, slots=True)
class ClientAbilities:
    """What a client says it supports, beyond what every client must support."""

    # True if the editor accepts notifications about folds. The SDK has no type for it.
    compaction: bool = False
    terminal_output: bool = False
    reads_files: bool = False
    fills_forms: bool = False
    # True if the editor presents live notices. The SDK has no type for them either.
    notices: bool = False

    @classmethod
    def parse_initialize(cls, params: Any) -> "ClientAbilities":
        """Reads the abilities from the parameters of the client's `initialize`."""
        capabilities = value_at(params, "clientCapabilities")
        compaction = value_at(capabilities, "session", "compaction")
        terminal_output = value_at(capabilities, "_meta", "terminal_output")
        reads_files = value_at(capabilities, "fs", "readTextFile")
        form = value_at(capabilities, "elicitation", "form")
        notices = value_at(capabilities, "session", "notices")
        return cls(
            compaction=compaction is not None,
            terminal_output=terminal_output is True,
            reads_files=reads_files is True,
            fills_forms=form is not None,
            notices=notices is not None,
        )


@dataclass(frozen=True, slots=True)
class _Usage:
    """How full the context window is, and what the conversation has cost."""

    used_tokens: int
    window_tokens: int
    dollars: float


@dataclass(slots=True)
class ConversationUpdates:
    """The updates for one client. `own_messages` counts messages that the client sent
    and already shows.
    """

    bench: Workbench
    conversation: str
    abilities: ClientAbilities
    own_messages: int = 0
    # What each running call has printed so far, as much as is shown of it.
    _printed: dict[str, str] = field(default_factory=dict)
    _last_usage: _Usage | None = None

    async def updates_of_event(self, event: session_events.Event) -> AsyncIterator[Any]:
        """Yields updates in the order in which they must be sent. A dict is sent
        unchanged, without the SDK.
        """
        match event:
            case session_events.FactAppended(recorded):
                async for update in self.updates_of_fact(recorded.fact):
                    yield update
            case session_events.ReplyStreamed(delta=TextDelta(text)):
                yield helpers.update_agent_message_text(text)
            case session_events.ReplyStreamed(delta=ReasoningDelta(text)):
                yield helpers.update_agent_thought_text(text)
            case session_events.CallStageChanged(call=call, stage=session_events.CallStage.RUNNING):
                yield helpers.update_tool_call(call, status="in_progress")
            case session_events.ToolPrinted(call=call, text=text):
                yield self._terminal_output_update(call, text)
        wait = _describe_wait(event)
        if wait:
            yield self._wait_update(wait)
        if _may_change_usage(event):
            for update in self.usage_updates():
                yield update

    def _wait_update(self, sentence: str) -> Any:
        """Say why nothing comes. It is no part of the history."""
        if self.abilities.notices:
            return {"sessionUpdate": "notice", "severity": "info", "title": sentence}
        # What is shown as a thought stands apart from the answer. The next words begin below it.
        return helpers.update_agent_thought_text(f"{sentence}\n\n")

    async def updates_of_fact(
        self, fact: facts.Fact, *, is_replay: bool = False
    ) -> AsyncIterator[Any]:
        """Yields a fact's updates. `is_replay`: the conversation is being loaded, so
        its texts were not streamed.
        """
        match fact:
            case facts.UserSaid(by="") | facts.ModelReplied():
                for update in self._message_updates(fact, is_replay=is_replay):
                    yield update
            case facts.ToolReturned():
                yield await self._result_update(fact)
            case facts.TodoSet():
                yield _plan_update(fact)
            case facts.Folded() if self.abilities.compaction:
                yield _compaction_update(fact)
            case facts.FoldFailed(why=why) if self.abilities.notices and not is_replay:
                yield _notice_of_failed_fold(why)
            case facts.ConversationChanged(title=str(title)):
                yield schema.SessionInfoUpdate(session_update="session_info_update", title=title)

    def _message_updates(
        self, fact: facts.UserSaid | facts.ModelReplied, *, is_replay: bool
    ) -> Iterator[Any]:
        """Yields the parts of a message that the client does not have yet."""
        if isinstance(fact, facts.ModelReplied):
            yield from self._reply_updates(fact, is_replay=is_replay)
            return
        if self.own_messages and not is_replay:
            # The client has sent this message itself.
            self.own_messages -= 1
            return
        for part in fact.parts:
            if isinstance(part, facts.Text):
                yield helpers.update_user_message_text(part.text)
            else:
                yield helpers.update_user_message_text(f"[{part.name}]")

    def _reply_updates(self, reply: facts.ModelReplied, *, is_replay: bool) -> Iterator[Any]:
        """Yields the calls of a reply. Its texts were streamed, unless it is loaded."""
        for part in reply.parts:
            match part:
                case facts.ToolCall():
                    yield self._call_update(part)
                case facts.Text(text=text) if is_replay:
                    yield helpers.update_agent_message_text(text)
                case facts.Reasoning(text=text) if is_replay and text:
                    yield helpers.update_agent_thought_text(text)

    def usage_updates(self) -> list[Any]:
        """How full the context window is and what the conversation cost, if either has changed."""
        session = self.bench.sessions.find_open_session(self.conversation)
        if session is None:
            return []
        meter = session.context.next_request_meter()
        dollars = 0.0
        row = self.bench.conversation_row(self.conversation)
        if row is not None:
            dollars = row.whole_cost
        usage = _Usage(meter.used, meter.window, dollars)
        if usage == self._last_usage:
            return []
        self._last_usage = usage
        update = schema.UsageUpdate(
            session_update="usage_update",
            used=meter.used,
            size=meter.window,
            cost=schema.Cost(amount=dollars, currency="USD"),
        )
        return [update]

    def _call_update(self, call: facts.ToolCall) -> Any:
        """Returns the card of a call, which a client with terminals fills with one."""
        title = title_of_call(call)
        kind = kind_of_call(call)
        locations = self.locations_of_call(call)
        arguments = parse_object(call.arguments)
        update = helpers.start_tool_call(
            call.id,
            title,
            kind=kind,
            status="pending",
            locations=locations,
            raw_input=arguments,
        )
        if self.abilities.terminal_output and call.name == ToolName.RUN_COMMAND:
            terminal = {"terminal_id": call.id, "cwd": str(self.bench.main_folder)}
            update.content = [helpers.tool_terminal_ref(call.id)]
            update.field_meta = {"terminal_info": terminal}
        return update

    def locations_of_call(self, call: facts.ToolCall) -> list[schema.ToolCallLocation] | None:
        """The file that a call is about, so that the editor can open it."""
        arguments = parse_object(call.arguments) or {}
        path = arguments.get("path")
        if not isinstance(path, str):
            return None
        full_path = self._full_path(path)
        if not full_path:
            return None
        return [schema.ToolCallLocation(path=full_path)]

    def _full_path(self, path: str) -> str:
        """The full path in the conversation's folders or copy, or an empty string if
        the path is outside them.
        """
        copy_id = ""
        session = self.bench.sessions.find_open_session(self.conversation)
        if session is not None:
            copy_id = session.conversation.state.own_copy
        roots = self.bench.copies.tools_of_copy(copy_id).resources.roots
        try:
            return str(roots.resolve_path(path).full_path)
        except HelixError:
            return ""

    def _terminal_output_update(self, call: str, text: str) -> Any:
        """Sends new output to the client's terminal, or without one the newest part of all output."""
        if self.abilities.terminal_output:
            self._printed[call] = ""
            update = helpers.update_tool_call(call)
            update.field_meta = {"terminal_output": {"terminal_id": call, "data": text}}
            return update
        printed_before = self._printed.get(call, "")
        newest_output = (printed_before + text)[-SHOWN_BYTES:]
        self._printed[call] = newest_output
        return helpers.update_tool_call(call, content=[_fenced_content(newest_output)])

    async def _result_update(self, fact: facts.ToolReturned) -> Any:
        """Returns the end of a call: the differences of the files that it changed, or its output."""
        was_printed = self._printed.pop(fact.call, None) is not None
        content = await self._build_file_differences(fact)
        output = fact.head or await self._beginning_of_output(fact)
        status: schema.ToolCallStatus = "failed"
        if fact.ok:
            status = "completed"
        update = helpers.update_tool_call(fact.call, status=status)

        ran_in_terminal = self.abilities.terminal_output and fact.exit_code is not None
        if ran_in_terminal:
            update.field_meta = _describe_terminal_exit(fact)
            if not was_printed:
                update.field_meta["terminal_output"] = {"terminal_id": fact.call, "data": output}
        elif output:
            # The differences show what a call has done that succeeded.
            is_shown_by_differences = bool(content) and fact.ok
            if not is_shown_by_differences:
                content.append(_fenced_content(output))
        update.content = content or None
        return update

    async def _build_file_differences(self, fact: facts.ToolReturned) -> list[Any]:
        differences: list[Any] = []
        for change in fact.changes:
            difference = await self._build_file_difference(change)
            if difference is not None:
                differences.append(difference)
        return differences

    async def _beginning_of_output(self, fact: facts.ToolReturned) -> str:
        """Reads the stored output, as much as is shown. Empty if it is no longer stored."""
        session = self.bench.sessions.find_open_session(self.conversation)
        if session is None or not fact.output.size:
            return ""
        cache = self.bench.workspace.cache
        try:
            text = await content_recall.read_entry_beginning(cache, fact.output, SHOWN_BYTES)
        except HelixError:
            return ""
        if fact.output.size > SHOWN_BYTES:
            text += f"\n… ({fact.output.size:,} bytes in all)"
        return text

    async def _build_file_difference(
        self, change: facts.FileChanged
    ) -> schema.FileEditToolCallContent | None:
        """Returns None if a version is too large, no text, or no longer stored."""
        before = await self._read_version(change.before)
        after = await self._read_version(change.after)
        if before is None or after is None:
            return None
        path = self._full_path(change.path) or change.path
        if change.before is None:  # A new file has no earlier text.
            return helpers.tool_diff_content(path, after, None)
        return helpers.tool_diff_content(path, after, before)

    async def _read_version(self, digest: Digest | None) -> str | None:
        """Returns a file's stored text. A file that did not exist is empty."""
        if digest is None:
            return ""
        try:
            content = await self.bench.workspace.cache.read_content(digest)
            if len(content) > LARGEST_DIFF:
                return None
            return content.decode()
        except (HelixError, UnicodeDecodeError):
            return None


def build_cold_cache_notice(price: NextMessageCost | None, now: float) -> dict[str, str] | None:
    """Return a notice that the next message costs more, because the provider has forgotten the
    conversation meanwhile. None: it has not, or the difference is small.
    """
    if price is None or not price.warm_until or price.is_cache_warm(now):
        return None
    if price.cold - price.warm < LEAST_DOLLARS_OF_COLD_CACHE:
        return None
    return {
        "sessionUpdate": "notice",
        "severity": "info",
        "title": "The provider's cache of this conversation has expired.",
        "description": f"This message costs about ${price.cold:.2f} instead of ${price.warm:.2f}.",
    }


def _describe_terminal_exit(fact: facts.ToolReturned) -> dict[str, Any]:
    exit_status = {"terminal_id": fact.call, "exit_code": fact.exit_code, "signal": None}
    return {"terminal_exit": exit_status}


def _notice_of_failed_fold(why: str) -> dict[str, str]:
    """Return a notice, which is no part of the history: an editor may show it or not."""
    # Each attempt adds a reason. Only the first one is told, as in the window.
    first_reason, _, _ = why.partition("; ")
    return {
        "sessionUpdate": "notice",
        "severity": "warning",
        "title": "No summary was written, and nothing is lost.",
        "description": first_reason.rstrip(".") + ".",
    }


def _describe_wait(event: session_events.Event) -> str:
    """Return why nothing comes from now on. Empty: the event does not say that."""
    match event:
        case session_events.ReplyStreamed(delta=RetryDelay(why=why, seconds=seconds)):
            return session_events.describe_retry(seconds, why)
        case session_events.FoldProgress():
            return session_events.describe_wait_for_summary(event)
    return ""


def _may_change_usage(event: session_events.Event) -> bool:
    if isinstance(event, session_events.MeterChanged):
        return True
    if not isinstance(event, session_events.FactAppended):
        return False
    return isinstance(
        event.recorded.fact,
        facts.ModelReplied | facts.ToolReturned | facts.Folded | facts.TurnEnded,
    )


def _plan_update(todo: facts.TodoSet) -> Any:
    entries: list[Any] = []
    for text, state in todo.items:
        status = _PLAN[state]
        entries.append(helpers.plan_entry(text, status=status))
    return helpers.update_plan(entries)


def _compaction_update(folded: facts.Folded) -> dict[str, Any]:
    """Returns the update for a fold, which the protocol calls a compaction."""
    summary: list[dict[str, str]] = []
    if folded.text:
        summary.append({"type": "text", "text": folded.text})
    return {
        "sessionUpdate": "compaction_update",
        "compactionId": folded.fold,
        "status": "completed",
        "summary": summary,
    }


def _fenced_content(text: str) -> Any:
    block = helpers.text_block(wrap_in_code_fence(text))
    return helpers.tool_content(block)


def kind_of_call(call: facts.ToolCall) -> schema.ToolKind:
    return _KINDS.get(call.name, "other")


def title_of_call(call: facts.ToolCall) -> str:
    """Returns the tool's name, and its first argument that is a text."""
    arguments = parse_object(call.arguments) or {}
    for value in arguments.values():
        if isinstance(value, str):
            return shorten_to_line(f"{call.name} {value}", TITLE)
    return shorten_to_line(f"{call.name} ", TITLE)
