"""Records what a foreign agent says and does in a turn, as facts and as events for listeners.

A reply is recorded once one of its calls runs. The results of its calls are recorded together once
the last one is known, because a reply closes the calls before it. What the agent says meanwhile is
shown at once and recorded as the next reply.
"""

import asyncio
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from helix_desktop.engine import facts
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.messages import ReasoningDelta, TextDelta
from helix_desktop.engine.ports import CallOutcome, EntryOrigin
from helix_desktop.engine.session_events import (
    CallStage,
    CallStageChanged,
    ReplyStreamed,
    ToolPrinted,
)
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, UNREAD
from helix_desktop.engine.view_contents import SAMPLE_BYTES, estimate_entry_tokens
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import first_text, object_at, objects_at, text_at, value_at
from helix_desktop.tools.built_in_tool import WorkspaceResources

HEAD_BYTES = 2_000  # A result of up to this size is in the fact itself, too.
MOST_TEXT = 1 << 20  # A reply with more characters than this is recorded as several replies.
# An agent that changes between words and thoughts all the time makes parts of no length at all.
SIZE_OF_PART = 100
MOST_IN_TURN = 256 << 20  # The maximum total size in bytes of one turn's updates.
MOST_CALLS = 2_000
LONGEST_NAME = 128
LONGEST_ARGUMENTS = 200_000
_TODO = {"in_progress": "doing", "completed": "done"}


@dataclass(slots=True)
class AcpCall:
    """A tool call, as far as the agent has described it. `is_live`: it is running, or
    the user is being asked.
    """

    id: str
    description: dict[str, Any]
    is_live: bool = False
    is_over: bool = False
    was_cut: bool = False  # True if the turn ended before this call did.
    was_stopped_at_question: bool = False

    @property
    def title(self) -> str:
        return text_at(self.description, "title")

    def as_tool_call(self) -> facts.ToolCall:
        """Builds the call under the agent's own name for the tool. If the agent gives none, the
        title is the name where it is one word, and otherwise the kind.
        """
        claude_code_fields = object_at(self.description, "_meta", "claudeCode")
        name = text_at(claude_code_fields, "toolName")
        if not name:
            title_is_one_word = self.title.replace("_", "").isalnum()
            if title_is_one_word:
                name = self.title
            else:
                name = text_at(self.description, "kind") or "tool"
        arguments = self.arguments_text()[:LONGEST_ARGUMENTS]
        return facts.ToolCall(self.id, name[:LONGEST_NAME], arguments)

    def arguments_text(self) -> str:
        """Returns all of the call's input as JSON."""
        arguments = object_at(self.description, "rawInput")
        if not arguments:
            arguments = {"title": self.title}
        return json.dumps(arguments, ensure_ascii=False)

    def names_command(self, command_line: str) -> bool:
        """Whether what is recorded of the call holds this command, as text or as a list of words."""
        texts = [self.title]
        call_input = object_at(self.description, "rawInput")
        for value in call_input.values():
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, list):
                words = [str(word) for word in value]
                texts.append(shlex.join(words))
        return any(command_line in text for text in texts)

    @property
    def differences(self) -> list[dict[str, Any]]:
        """What the call changes in files, according to the agent."""
        contents = objects_at(self.description, "content")
        return [content for content in contents if text_at(content, "type") == "diff"]

    def difference_text(self, name_file: Callable[[str], str] = str) -> str:
        """Returns the changes of the call. `name_file`: what a file with this path is called."""
        texts: list[str] = []
        for difference in self.differences:
            old = text_at(difference, "oldText")
            new = text_at(difference, "newText")
            ends_with_line = old.endswith("\n") or new.endswith("\n")
            # Agents send the changed lines of a file, most of them without the last line end.
            if old and new and not ends_with_line:
                old += "\n"
                new += "\n"
            path = text_at(difference, "path")
            diff = format_unified_diff(old, new, name_file(path))
            texts.append(diff)
        return "\n".join(texts)

    def output_text(self) -> str:
        """Returns differences and texts, or if there are none, the raw output."""
        if self.was_cut and self.was_stopped_at_question:
            return NOT_BEGUN
        if self.was_cut:
            return UNREAD
        texts = [self.difference_text()]
        for entry in objects_at(self.description, "content"):
            content = object_at(entry, "content")
            texts.append(first_text(content, "text", "mimeType"))
        output = "\n".join(text for text in texts if text)
        if output:
            return output
        raw_output = value_at(self.description, "rawOutput")
        if not raw_output:
            return "[no output]"
        if isinstance(raw_output, str):
            return raw_output
        return json.dumps(raw_output, ensure_ascii=False, indent=1)


@dataclass(slots=True)
class _SpokenPart:
    is_thought: bool
    pieces: list[str] = field(default_factory=list)


class TurnRecorder:
    """Records one turn. `has_heard_agent`: the agent has said or done something in this turn."""

    def __init__(
        self, conversation: Conversation, resources: WorkspaceResources, model: str
    ) -> None:
        self._conversation = conversation
        self._cache = resources.cache
        self._tokens = resources.tokens
        self.model = model
        self.has_heard_agent = False
        self._draft: list[_SpokenPart | AcpCall] = []
        self._draft_has_call = False
        # Set when the turn ends. What the agent says then belongs to no turn.
        self._is_finished = False
        self._calls: dict[str, AcpCall] = {}
        self._running: list[AcpCall] = []  # The calls in the reply that was recorded last.
        # The results of commands that ran in our terminals, by call.
        self._outcomes: dict[str, CallOutcome] = {}
        self._lock = asyncio.Lock()
        self._total_size = 0
        self._draft_size = 0

    async def record_session_update(self, update: dict[str, Any], size_bytes: int) -> None:
        """Records an update of `size_bytes` bytes. Kinds unknown to this version are ignored."""
        self.add_size(size_bytes)
        if self._is_finished:
            return
        match text_at(update, "sessionUpdate"):
            case "agent_message_chunk" | "agent_thought_chunk" as kind:
                self.has_heard_agent = True
                await self._add_streamed_text(update, is_thought=kind == "agent_thought_chunk")
            case "tool_call" | "tool_call_update":
                await self.record_call_update(update)
            case "plan":
                await self._record_plan(update)

    def add_size(self, size_bytes: int) -> None:
        """Counts what the agent sends in this turn. Raises ModelFailed once it is too much."""
        self._total_size += size_bytes
        if self._total_size > MOST_IN_TURN or len(self._calls) > MOST_CALLS:
            raise ModelFailed("it sent more data than a single turn can hold")

    async def _record_plan(self, update: dict[str, Any]) -> None:
        items: list[tuple[str, str]] = []
        for entry in objects_at(update, "entries")[:200]:
            text = text_at(entry, "content")[:500]
            status = text_at(entry, "status")
            state = _TODO.get(status, "open")
            items.append((text, state))
        todo = tuple(items)
        if todo != self._conversation.state.branch.todo:
            await self._conversation.append_facts(facts.TodoSet(todo))

    async def _add_streamed_text(self, update: dict[str, Any], *, is_thought: bool) -> None:
        """Shows a piece of the agent's words or thoughts, and adds it to the draft of its reply."""
        text = first_text(object_at(update, "content"), "text", "mimeType", "uri")
        if self._draft_has_call or self._draft_size > MOST_TEXT:
            await self._record_draft_unless_call_runs()

        delta: ReasoningDelta | TextDelta
        if is_thought:
            delta = ReasoningDelta(text)
        else:
            delta = TextDelta(text)
        self._conversation.notify_listeners(ReplyStreamed(self._conversation.id, delta))

        spoken_part = self._last_spoken_part(is_thought=is_thought)
        spoken_part.pieces.append(text)
        self._draft_size += len(text)

    def _last_spoken_part(self, *, is_thought: bool) -> _SpokenPart:
        """Returns the draft's last part if it is of this kind, or else adds a new one."""
        if self._draft:
            last_part = self._draft[-1]
            if isinstance(last_part, _SpokenPart) and last_part.is_thought == is_thought:
                return last_part
            self._draft_size += SIZE_OF_PART
        new_part = _SpokenPart(is_thought)
        self._draft.append(new_part)
        return new_part

    # --- Collecting the agent's calls and their results

    async def record_call_update(self, update: dict[str, Any], *, is_live: bool = False) -> AcpCall:
        """Records what the agent says of a call. `is_live`: the user is asked, so it is
        recorded now.
        """
        self.has_heard_agent = True
        if self._is_finished:
            return AcpCall("", dict(update))
        call = self._find_or_add_call(update)
        for name, value in update.items():
            if value is not None:
                call.description[name] = value
        status = text_at(update, "status")
        if status in ("completed", "failed"):
            self._mark_call_done_and_notify(call)
        is_running = status == "in_progress"
        if is_live or call.is_over or is_running:
            call.is_live = True
        if call.is_live:
            await self.record_finished_parts()
        return call

    def _find_or_add_call(self, update: dict[str, Any]) -> AcpCall:
        """Returns the call that an update is about. A new one becomes part of the next reply."""
        call_id = text_at(update, "toolCallId")[:LONGEST_NAME]
        if not call_id:
            call_id = f"call {len(self._calls)}"
        call = self._calls.get(call_id)
        if call is None:
            call = AcpCall(call_id, {})
            self._calls[call_id] = call
            self._add_call_to_draft(call)
        return call

    def _add_call_to_draft(self, call: AcpCall) -> None:
        self._draft.append(call)
        self._draft_has_call = True

    def _mark_call_done_and_notify(self, call: AcpCall) -> None:
        call.is_live = True
        call.is_over = True
        self._conversation.notify_listeners(
            CallStageChanged(self._conversation.id, call.id, CallStage.DONE)
        )

    async def record_finished_command(
        self, terminal_id: str, command: facts.ToolCall, outcome: CallOutcome
    ) -> None:
        """Records a command as the output of the call that shows its terminal, or as a
        call of its own.
        """
        call = self._find_call_of_terminal(terminal_id)
        if call is not None and not self._can_show_command(call, command):
            call = None
        if call is None:
            description = {"title": command.name, "rawInput": json.loads(command.arguments)}
            call = AcpCall(command.id, description)
            self._calls[call.id] = call
            self._add_call_to_draft(call)
            self._mark_call_done_and_notify(call)
        self._outcomes[call.id] = outcome
        await self.record_finished_parts()

    def _find_call_of_terminal(self, terminal_id: str) -> AcpCall | None:
        for call in self._calls.values():
            for content in objects_at(call.description, "content"):
                if text_at(content, "terminalId") == terminal_id:
                    return call
        return None

    def _can_show_command(self, call: AcpCall, command: facts.ToolCall) -> bool:
        """Whether the command is recorded truly as this call. The agent gives the call its words,
        and what ran must not stand there as something else, or nowhere.
        """
        if call.id in self._outcomes:
            return False
        is_unrecorded = call in self._running or call in self._draft
        if call.is_over and not is_unrecorded:
            return False
        arguments = json.loads(command.arguments)
        return call.names_command(text_at(arguments, "command"))

    def notify_of_terminal_output(self, terminal_id: str, text: str) -> None:
        call = self._find_call_of_terminal(terminal_id)
        if call is not None:
            self._conversation.notify_listeners(ToolPrinted(self._conversation.id, call.id, text))

    # --- Recording replies and results as facts

    async def record_finished_parts(self) -> None:
        """Records the results once a reply's calls are over, then the next reply with a
        running call. Finished even if the caller is stopped meanwhile: what is being recorded is
        in neither list any more, and would be lost.
        """
        await asyncio.shield(self._record_finished_parts())

    async def _record_finished_parts(self) -> None:
        async with self._lock:
            while all(call.is_over for call in self._running):
                finished_calls = self._running
                self._running = []
                storings = [self._store_output_and_build_result(call) for call in finished_calls]
                results = await asyncio.gather(*storings)
                await self._conversation.append_facts(*results)
                if not self._has_live_call_in_draft():
                    return
                await self._record_draft_as_reply(facts.Stop.CALLS)

    def _has_live_call_in_draft(self) -> bool:
        for part in self._draft:
            if isinstance(part, AcpCall) and part.is_live:
                return True
        return False

    async def _record_draft_unless_call_runs(self) -> None:
        for part in self._draft:
            if isinstance(part, AcpCall):
                part.is_live = True
        await self.record_finished_parts()
        async with self._lock:
            if not self._running and self._draft_size > MOST_TEXT:
                await self._record_draft_as_reply(facts.Stop.END)

    async def finish_turn(self, stop: facts.Stop, usage: facts.Usage) -> None:
        """Records what is left. A running call is recorded as cut off, an unrecorded
        one is left out.
        """
        self._is_finished = True
        async with self._lock:  # A reply that is being recorded has its calls in neither list.
            self._draft = _without_unfinished_calls(self._draft)
            for call in self._running:
                call.was_cut = not call.is_over
                self._mark_call_done_and_notify(call)
        await self.record_finished_parts()
        if self._draft:
            await self._record_draft_as_reply(stop)
        if usage != facts.Usage():
            spent = facts.Spent(facts.Purpose.OTHER, self.model, usage)
            await self._conversation.append_facts(spent)

    async def _record_draft_as_reply(self, stop: facts.Stop) -> None:
        """Appends the draft as a reply, and reports what its calls do."""
        draft = self._draft
        self._draft = []
        self._draft_has_call = False
        self._draft_size = 0
        parts = await asyncio.to_thread(self._build_reply_parts, draft)
        self._running = [part for part in draft if isinstance(part, AcpCall)]
        await self._conversation.append_facts(facts.ModelReplied(parts, self.model, stop))
        for call in self._running:
            stage = CallStage.RUNNING
            if call.is_over:
                stage = CallStage.DONE
            self._conversation.notify_listeners(
                CallStageChanged(self._conversation.id, call.id, stage)
            )

    def _build_reply_parts(
        self, draft: Sequence[_SpokenPart | AcpCall]
    ) -> tuple[facts.ReplyPart, ...]:
        return tuple(self._build_reply_part(part) for part in draft)

    def _build_reply_part(self, part: _SpokenPart | AcpCall) -> facts.ReplyPart:
        count = self._tokens.count_tokens
        if isinstance(part, AcpCall):
            call = part.as_tool_call()
            return replace(call, tokens=count(call.name) + count(call.arguments))
        text = "".join(part.pieces)
        if part.is_thought:
            return facts.Reasoning(text, count(text))
        return facts.Text(text, count(text))

    async def _store_output_and_build_result(self, call: AcpCall) -> facts.ToolReturned:
        """Builds the result of a call. What it put out is stored first, unless it ran as a
        command of ours, whose output is stored already.
        """
        outcome = self._outcomes.get(call.id)
        if outcome is None:
            outcome = await self._store_output_of_agent(call)
        size = outcome.output.size
        sample_size = min(size, SAMPLE_BYTES)
        sample = await self._cache.read_range(outcome.output.digest, 0, sample_size)
        head = ""
        if size <= HEAD_BYTES:
            head = sample.decode("utf-8", "replace")
        count_tokens = self._tokens.count_tokens
        tokens = await asyncio.to_thread(estimate_entry_tokens, size, sample, count_tokens)
        return facts.ToolReturned(
            call=call.id,
            output=outcome.output,
            tokens=tokens,
            ok=outcome.ok,
            exit_code=outcome.exit_code,
            head=head,
            stopped=outcome.stopped,
        )

    async def _store_output_of_agent(self, call: AcpCall) -> CallOutcome:
        """Stores what the agent says that its call put out."""
        tool_name = call.as_tool_call().name
        origin = EntryOrigin(tool_name, call.title[:200])
        output = await asyncio.to_thread(call.output_text)
        content = output.encode("utf-8", "replace")
        stored = await self._cache.store_content(content, origin)
        is_completed = text_at(call.description, "status") == "completed"
        return CallOutcome(stored, is_completed, stopped=call.was_cut)


def _without_unfinished_calls(
    parts: list[_SpokenPart | AcpCall],
) -> list[_SpokenPart | AcpCall]:
    kept_parts: list[_SpokenPart | AcpCall] = []
    for part in parts:
        is_unfinished_call = isinstance(part, AcpCall) and not part.is_over
        if not is_unfinished_call:
            kept_parts.append(part)
    return kept_parts
