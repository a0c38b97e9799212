"""Rollouts of Codex: `~/.codex/sessions/…/rollout-*.jsonl`, one item of the Responses API per line.

Tested with files of 0.169.0 and 0.171.0, and with older ones of bare items. Newer files
wrap each item as `{"type": "response_item", "payload": item}`, among other events. What
the model wrote between two inputs (reasoning, a message, calls) is one reply. Events
name the model (`turn_context`), a request's tokens (`token_count`), a command's
complete output, and where the history was compacted.
"""

import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.agent_additions import SEALED_SUMMARY
from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import list_tree_files
from helix_desktop.histories import history_rows, recorded_session
from helix_desktop.histories.companion_files import read_file_below
from helix_desktop.histories.history_format import HistoryFormat, HistoryPlaces
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    Speaker,
)
from helix_desktop.json_values import (
    first_text,
    number_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)
from helix_desktop.resources import read_word_lists

KIND = "codex"
TAG = "openai-responses api.openai.com"
_CALLS, _HOSTED, _OUTPUTS, _EVENTS = read_word_lists("codex_rows").values()
_ITEMS = (*_CALLS, *_HOSTED, *_OUTPUTS, "message", "reasoning", "agent_message")
# Messages that Codex itself adds begin so.
_OWN_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md")
NOT_RECORDED = "[The provider ran this itself; the rollout does not have what came of it.]"


def is_codex_row(value: Mapping[str, object]) -> bool:
    """Whether a row is from a rollout: an event with a payload, or a bare item."""
    kind = value.get("type")
    if kind in _EVENTS and isinstance(value.get("payload"), Mapping):
        return True
    # pi has rows of the type "message", too, but with these fields.
    return kind in _ITEMS and "message" not in value and "parentId" not in value


def read_codex_recordings(
    rows: Sequence[history_rows.HistoryRow], report: history_rows.ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return a rollout's session. A fork begins with a copy of its original."""
    rollout = _read_rollout(rows, report)
    session_meta = rollout.session_meta
    source = object_at(session_meta, "source", "subagent", "thread_spawn")
    parent = text_at(source, "parent_thread_id")
    forked_from = text_at(session_meta, "forked_from_id")
    if not parent and not forked_from:
        # Since 0.171, sub-agents name the session that started them here, too.
        parent = text_at(session_meta, "parent_thread_id")
    copied_message_count = 0
    if forked_from and not parent:
        copied_message_count = _count_copied_messages(rollout.messages, path, forked_from)
    if copied_message_count == 0:
        forked_from = ""
    session_id = text_at(session_meta, "id") or _session_id_of_file(path)
    # Codex has no titles, and a copy needs one of its own.
    title = text_at(session_meta, "helix_title")
    folder = text_at(session_meta, "cwd")
    version = text_at(session_meta, "cli_version")
    session = RecordedSession(
        name=str(path),
        messages=tuple(rollout.messages),
        kind=KIND,
        session=session_id,
        title=title,
        folder=folder,
        version=version,
        compactions=tuple(rollout.compactions),
        forked_from=forked_from,
        forked_at=copied_message_count,
        parent=parent,
    )
    return [session]


def _session_id_of_file(path: Path) -> str:
    """Return what follows the time in `rollout-2026-11-21T03-33-32-<id>.jsonl`."""
    if not path.match("rollout-2*"):
        return path.stem
    return path.stem[len("rollout-2026-11-21T03-33-32-") :]


def _read_rollout(
    rows: Iterable[history_rows.HistoryRow], report: history_rows.ReadingReport
) -> "_CodexMessages":
    messages = _CodexMessages(report).read_rows(rows)
    messages.finish_reply()
    return messages


def _count_copied_messages(
    fork_messages: Sequence[RecordedMessage], fork_path: Path, original_session: str
) -> int:
    """Return how many first messages equal those of the original, whatever their times."""
    original_messages = _read_original_rollout(fork_path, original_session)
    count = 0
    for fork_message, original_message in zip(fork_messages, original_messages, strict=False):
        if _comparable_message(fork_message) != _comparable_message(original_message):
            break
        count += 1
    return count


def _read_original_rollout(fork_path: Path, original_session: str) -> Sequence[RecordedMessage]:
    """Return the messages of the original session, whose file is in the same folder of sessions,
    or none if it cannot be read.
    """
    root = fork_path.parent
    for folder in fork_path.parents:
        if folder.name == "sessions":
            root = folder
            break
    for file, _ in list_tree_files(root, f"rollout-*{glob.escape(original_session)}.jsonl"):
        if file == fork_path:
            continue
        try:
            lines = read_file_below(root, str(file.relative_to(root))).splitlines()
        except OSError:
            return []
        rows: list[history_rows.HistoryRow] = []
        for line in lines:
            value = object_at(parse_json_or_none(line))
            if value:
                rows.append(history_rows.HistoryRow(value, ""))
        return _read_rollout(rows, history_rows.ReadingReport()).messages
    return []


def _text_after_compaction(summary: str, kept_items: Sequence[Mapping[str, object]]) -> str:
    """Return what the model is shown after a compaction: the messages that Codex kept, which are
    the user's, and the summary. Codex adds its instructions and its environment to every request
    itself, so these are left out.
    """
    texts: list[str] = []
    for item in kept_items:
        if item.get("type") != "message" or item.get("role") in ("system", "developer"):
            continue
        text = history_rows.text_of_message_content(item.get("content"))
        if text.strip() and not text.startswith(_OWN_CONTEXT):
            texts.append(text)
    if summary and summary not in texts:
        texts.append(summary)
    return "\n\n".join(texts)


def _comparable_message(message: RecordedMessage) -> object:
    return message.role, message.text, message.calls, message.answers


@dataclass(slots=True)
class _CodexMessages(history_rows.HistoryMessages):
    """`reply_parts`: those of the reply being assembled. `session_meta`: the session's metadata."""

    reply_parts: list[ReplyPart] = field(default_factory=list)
    reply_start_time: float = 0.0
    session_meta: Mapping[str, object] = field(default_factory=dict)
    model: str = ""
    # Each command's complete output, by call id.
    complete_outputs: dict[str, str] = field(default_factory=dict)
    time: float = 0.0  # That of the newest row with a time.
    last_reply_index: int = -1  # In `messages`.

    def read_row(self, value: Mapping[str, object]) -> None:
        """Read a row by its kind: an item of the conversation, wrapped or, in older files, bare; an
        event about the session; or the first line of older files, which describes the session.
        """
        kind = value.get("type")
        self.time = history_rows.parse_time(value.get("timestamp")) or self.time
        if kind == "response_item":
            self._read_codex_item(object_at(value, "payload"))
        elif kind in _ITEMS:
            self._read_codex_item(value)
        elif kind in _EVENTS:
            self._read_event_of_rollout(str(kind), value)
        elif "id" in value and "instructions" in value and not self.session_meta:
            # The first line of older files has no type.
            self._read_session_meta(value)
        else:
            self._add_left_out_codex_row(value)

    def _read_event_of_rollout(self, kind: str, value: Mapping[str, object]) -> None:
        """Read a row that wraps its values in a "payload"."""
        payload = object_at(value, "payload")
        match kind:
            case "session_meta":
                self._read_session_meta(payload)
            case "turn_context":
                self.model = text_at(payload, "model") or self.model
            case "compacted":
                self._read_codex_compaction(payload)
            case "event_msg":
                self._read_codex_event(payload)
            case "token_usage_record":
                self._set_usage_of_last_reply(object_at(payload, "usage"))
            case _:
                self._add_left_out_codex_row(value)

    def _add_left_out_codex_row(self, value: Mapping[str, object]) -> None:
        self.report.add_left_out_row(first_text(value, "type", "record_type") or "no type")

    def _read_session_meta(self, session_meta: Mapping[str, object]) -> None:
        """Note the session's metadata, and add its instructions to the model as the first
        message. Only the first metadata count, as a fork also has a copy of its original's.
        """
        if self.session_meta:
            return
        self.session_meta = session_meta
        instructions = session_meta.get("base_instructions", session_meta.get("instructions"))
        if isinstance(instructions, str):
            text = instructions
        else:
            text = text_at(instructions, "text")
        if text:
            self.messages.append(RecordedMessage("system", text, time=self.time))

    def _read_codex_item(self, item: Mapping[str, object]) -> None:
        """Read an item of the Responses API."""
        kind = item.get("type")
        if kind == "message":
            self._read_codex_message(item)
        elif kind == "reasoning":
            self._read_codex_reasoning(item)
        elif kind in _CALLS:
            self._read_codex_call(item)
        elif kind in _OUTPUTS:
            self._read_codex_output(item)
        elif kind in _HOSTED:
            self._read_hosted_call(item)
        elif kind == "agent_message":
            self._read_message_of_agent(item)
        else:
            self.report.add_left_out_row(f"item {kind}")

    def _read_message_of_agent(self, item: Mapping[str, object]) -> None:
        """Add what another agent sent to this one, as a message that no user typed."""
        self.finish_reply()
        sender = first_text(item, "author", "sender")
        content = item.get("content", item.get("message"))
        words = history_rows.text_of_message_content(content)
        text = f"[Message of the agent {sender}]\n{words}"
        self.messages.append(RecordedMessage("user", text, time=self.time, beside=True))

    def _read_codex_message(self, item: Mapping[str, object]) -> None:
        """Add a message of the user or the system, or a text to the reply."""
        role = item.get("role")
        text, pictures = history_rows.text_and_pictures(item.get("content"))
        if role == "assistant":
            self._begin_reply_unless_reasoning_alone()
            self._add_reply_part_to_draft(Text(text))
            return
        if role not in ("user", "system", "developer"):
            raise history_rows.UnknownRow(f"there is no role {role!r}")
        self.finish_reply()
        speaker: Speaker = "system"
        if role == "user":
            speaker = "user"
        is_beside = text.startswith(_OWN_CONTEXT)
        message = RecordedMessage(
            speaker, text, time=self.time, pictures=pictures, beside=is_beside
        )
        self.messages.append(message)

    def _begin_reply_unless_reasoning_alone(self) -> None:
        """Finish the reply if it says or calls something: only reasoning belongs to what follows."""
        if any(isinstance(part, Text | ToolCall) for part in self.reply_parts):
            self.finish_reply()

    def _read_codex_reasoning(self, item: Mapping[str, object]) -> None:
        """Add reasoning to the reply, with what the provider needs back of it."""
        self._begin_reply_unless_reasoning_alone()
        text = history_rows.text_of_message_content(item.get("summary"))
        if not text:
            text = history_rows.text_of_message_content(item.get("content"))
        if not text_at(item, "encrypted_content"):
            self._add_reply_part_to_draft(Reasoning(text))
            return
        # These fields are sent to the provider again.
        opaque_fields: dict[str, object] = {}
        for name, value in item.items():
            if name in ("type", "id", "summary", "encrypted_content"):
                opaque_fields[name] = value
        opaque = recorded_session.format_opaque_json(**opaque_fields)
        reasoning = Reasoning(text, opaque=opaque, provider=TAG, model=self.model)
        self._add_reply_part_to_draft(reasoning)

    def _read_codex_call(self, item: Mapping[str, object]) -> None:
        """Add a call to the reply. Each kind of call has its arguments elsewhere."""
        kind = item.get("type")
        name = text_at(item, "name")
        arguments = item.get("arguments", item.get("input"))
        if kind == "local_shell_call":
            name = "shell"
            arguments = object_at(item, "action")
        elif kind == "tool_search_call":
            name = name or "tool_search"
        elif kind == "custom_tool_call":
            arguments = {"input": arguments}
        call_id = first_text(item, "call_id", "id")
        call = history_rows.checked_tool_call(call_id, name, arguments)
        self._add_reply_part_to_draft(call)

    def _add_reply_part_to_draft(self, part: ReplyPart) -> None:
        if not self.reply_parts:
            self.reply_start_time = self.time
        self.reply_parts.append(part)

    def _read_codex_output(self, item: Mapping[str, object]) -> None:
        """Add the result of a call. The output is a text or an object with the content. `shown`
        is what the model saw of it, if an event has more of the command's output.
        """
        call_id = first_text(item, "call_id", "id")
        if not call_id:
            raise history_rows.UnreadableRow("an output names no call")
        self.finish_reply()

        output = item.get("output", item.get("tools"))
        output_object = object_at(output)
        content = output
        if output_object:
            content = output_object.get("content") or output_object.get("body")
        if item.get("type") == "tool_search_output":
            content = json.dumps(content, ensure_ascii=False)
        text, pictures = history_rows.text_and_pictures(content)

        has_failed = output_object.get("success") is False
        message = RecordedMessage(
            "tool",
            text,
            answers=call_id,
            ok=not has_failed,
            time=self.time,
            pictures=pictures,
        )
        complete_output = self.complete_outputs.pop(call_id, "")
        if len(complete_output) > len(text) and complete_output.strip() not in text:
            message = replace(message, text=complete_output, shown=text)
        self.messages.append(message)

    def _read_hosted_call(self, item: Mapping[str, object]) -> None:
        """Add a call of a tool that the provider ran itself, and what is recorded of its result."""
        tool = text_at(item, "type").removesuffix("_call")
        call_id = first_text(item, "id", "call_id")
        if not call_id:
            call_id = f"{tool}-{len(self.messages)}-{len(self.reply_parts)}"
        action: dict[str, object] = {}
        for name, value in item.items():
            if name not in ("type", "id", "call_id", "status", "result"):
                action[name] = value
        arguments = history_rows.format_arguments(action.get("action", action))
        self._add_reply_part_to_draft(ToolCall(call_id, tool, arguments))
        self.finish_reply()

        result = RecordedMessage("tool", NOT_RECORDED, answers=call_id, time=self.time)
        drawn_picture = history_rows.decode_picture("image/png", item.get("result"))
        if drawn_picture is not None:
            result = replace(result, text="(a picture)", pictures=(drawn_picture,))
        self.messages.append(result)

    def _read_codex_event(self, payload: Mapping[str, object]) -> None:
        """Read an event that says something about the session besides its messages."""
        kind = text_at(payload, "type")
        # Some events have their values in an "item", others have them directly.
        event = dict(payload) | object_at(payload, "item")
        if kind == "token_count":
            usage = object_at(payload, "info", "last_token_usage")
            self._set_usage_of_last_reply(usage)
        elif kind in ("exec_command_end", "item_completed") and "aggregated_output" in event:
            call_id = text_at(payload, "call_id") or text_at(payload, "item", "id")
            self.complete_outputs[call_id] = text_at(event, "aggregated_output")
        elif kind in ("error", "stream_error", "turn_aborted"):
            self.finish_reply()
            reason = first_text(payload, "message", "reason") or kind
            self.messages.append(RecordedMessage("failure", reason, time=self.time))
        else:
            self.report.add_left_out_row(f"event {kind}")

    def _set_usage_of_last_reply(self, usage: Mapping[str, object]) -> None:
        """Set the last reply's usage, which is recorded after it or after its calls' results.

        After a compaction, Codex reports how long its history is now, as a request of 0 tokens.
        """
        self.finish_reply()
        input_tokens = number_at(usage, "input_tokens")
        is_of_request = input_tokens > 0
        if not is_of_request or self.last_reply_index < 0:
            return
        recorded_usage = Usage(
            input=input_tokens,
            cache_read=number_at(usage, "cached_input_tokens"),
            cache_write=number_at(usage, "cache_write_input_tokens"),
            output=number_at(usage, "output_tokens"),
            reasoning=number_at(usage, "reasoning_output_tokens"),
        )
        last_reply = self.messages[self.last_reply_index]
        self.messages[self.last_reply_index] = replace(last_reply, usage=recorded_usage)

    def _read_codex_compaction(self, payload: Mapping[str, object]) -> None:
        """Add a compaction, or a message with the summary if the file has nothing
        before it.
        """
        self.finish_reply()
        kept_items = objects_at(payload, "replacement_history")
        text = _text_after_compaction(text_at(payload, "message"), kept_items)
        for item in kept_items:
            if item.get("type") != "reasoning" and text_at(item, "encrypted_content"):
                text += f"\n{SEALED_SUMMARY}"
                break

        roles = {message.role for message in self.messages}
        if roles <= {"system"}:
            # What was compacted is not in this file, so the summary is its first message.
            summary = RecordedMessage("user", text, time=self.time, beside=True, is_summary=True)
            self.messages.append(summary)
        elif text.strip():
            self.add_compaction(text, self.time, "Codex compacted the conversation here")

    def finish_reply(self) -> None:
        """Add the assembled reply to the messages, unless it says and calls nothing."""
        if recorded_session.has_text_or_call(self.reply_parts):
            reply = recorded_session.build_recorded_reply(
                self.reply_parts, model=self.model, time=self.reply_start_time
            )
            self.messages.append(reply)
            self.last_reply_index = len(self.messages) - 1
        self.reply_parts.clear()


def _list_codex_folders(places: HistoryPlaces) -> Sequence[Path]:
    codex_home = places.folder_from_variable("CODEX_HOME", ".codex")
    return [codex_home / "sessions", codex_home / "archived_sessions"]


FORMAT = HistoryFormat(
    KIND,
    recognizes=is_codex_row,
    read=read_codex_recordings,
    keeps_lines=True,
    folders=_list_codex_folders,
    file_pattern="rollout-*.jsonl",
)
