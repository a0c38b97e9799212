"""Translates tool calls between agents if they correspond, or else into text that describes them.

A call is only translated if all arguments have counterparts, so nothing is misrepresented.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.histories.claude_code_history import SHOWED
from helix_desktop.histories.recorded_session import RecordedMessage, build_recorded_reply
from helix_desktop.histories.session_writing import KeptContext
from helix_desktop.json_values import parse_json_or_none
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS
from helix_desktop.resources import read_table

_TABLE = read_table("agent_tools")


def _key_by_name(names_by_key: Mapping[str, str]) -> dict[str, str]:
    """Turn a table around. In it, the names of each key are separated by spaces."""
    key_by_name: dict[str, str] = {}
    for key, names in names_by_key.items():
        for name in names.split():
            key_by_name[name] = key
    return key_by_name


_ACTS = _key_by_name(_TABLE["acts"])
_ARGUMENTS = _key_by_name(_TABLE["arguments"])
_WITHOUT_EFFECT = frozenset({"description", "timeout", "timeout_ms", "timeout_seconds", "yield_time_ms", "max_output_tokens"})  # fmt: skip
_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (.+?)(?:\\n|\n|$)")
# What the user wrote behind a command of Claude Code's.
_WORDS_OF_COMMAND = re.compile(r"<command-args>\s*[^\s<]")
_NEEDED = {
    "command": {"command"},
    "read": {"path"},
    "write": {"path", "content"},
    "edit": {"path", "old", "new"},
}
# By agent and act: the name of the tool, and what it calls each argument.
_TARGETS = _TABLE["tools"]


def translate_call(call: ToolCall, target_agent: str) -> ToolCall | None:
    """Return the call to the target's own tool, or None if no tool takes these arguments."""
    act = _ACTS.get(call.name, "")
    tool = _TARGETS[target_agent].get(act)
    arguments = _canonical_arguments(call.arguments)
    if tool is None or arguments is None:
        return None
    folder = arguments.pop("folder", None)
    if set(arguments) != _NEEDED[act]:
        return None
    if folder is not None:
        if act != "command":
            return None
        arguments["command"] = f"cd {shlex.quote(folder)} && {arguments['command']}"
    target_arguments = {tool[meaning]: value for meaning, value in arguments.items()}
    arguments_text = json.dumps(target_arguments, ensure_ascii=False)
    return replace(call, name=tool["name"], arguments=arguments_text)


def edited_files_of_call(call: ToolCall) -> list[str]:
    """Return the files that a call of an agent writes or edits, also by a patch in Codex's form."""
    arguments = parse_json_or_none(call.arguments)
    if not isinstance(arguments, dict) or _ACTS.get(call.name) not in ("write", "edit"):
        return _PATCHED.findall(call.arguments)
    files: list[str] = []
    for name, value in arguments.items():
        if _ARGUMENTS.get(name) == "path":
            files.append(str(value))
    return files


def _canonical_arguments(arguments_text: str) -> dict[str, str] | None:
    """Return the arguments by common names, or None if one is unknown or is not a text."""
    parsed_arguments = parse_json_or_none(arguments_text or "{}")
    if parsed_arguments is None:
        return None
    if not isinstance(parsed_arguments, dict):
        return {}
    arguments: dict[str, str] = {}
    for name, value in parsed_arguments.items():
        if name in _WITHOUT_EFFECT:
            continue
        text = value
        if isinstance(value, list):
            text = _command_line_of_words(value)
        if name not in _ARGUMENTS or not isinstance(text, str):
            return None
        arguments[_ARGUMENTS[name]] = text
    return arguments


def _command_line_of_words(words: list[object]) -> str | None:
    """Return the command line, or that which a shell is given: `["bash", "-lc", "ls"]`."""
    texts: list[str] = []
    for word in words:
        if not isinstance(word, str):
            return None
        texts.append(word)
    if len(texts) == 3:
        program_path, option, command_line = texts
        _, _, program = program_path.rpartition("/")
        if program in ("bash", "sh", "zsh") and option in ("-c", "-lc"):
            return command_line
    return shlex.join(texts)


class MessageTranslation:
    """Translates messages for another agent. If not all calls of a reply translate, all
    become text.

    `left_out_reasoning` and `left_out_context` count parts that the other agent cannot read,
    and messages that the first agent itself inserted. `as_text` counts calls that became text.
    """

    def __init__(
        self,
        target: str,
        *,
        same_agent: bool,
        was_connected: bool = False,
        provider: str,
        kept_context: KeptContext = KeptContext.NONE,
        own_texts: frozenset[str] = frozenset(),
    ) -> None:
        """`was_connected`: the target itself made the calls, as the gateway saw it.
        `own_texts`: what lines of the target's own say, which can be written again.
        """
        self._target = target
        self._same_agent = same_agent
        self._was_connected = was_connected
        self._provider = provider
        self._kept_context = kept_context
        self._own_texts = own_texts
        # Tools whose calls became text, by call id: their results become text, too.
        self._texts: dict[str, str] = {}
        self.left_out_reasoning = 0
        self.left_out_context = 0
        self.as_text = 0

    def translate_message(self, message: RecordedMessage) -> RecordedMessage | None:
        """Return the message for the target, or None if it is left out."""
        if message.role == "assistant":
            return self._translate_reply(message)
        if message.role == "tool" and message.answers in self._texts:
            name = self._texts.pop(message.answers)
            if not message.ok:
                name += ", which failed"
            text = f"[Result of the tool {name}]\n{message.text}"
            return RecordedMessage(
                "user", text, time=message.time, pictures=message.pictures, beside=True
            )
        is_context = message.beside or message.role == "system"
        if is_context and not self._is_context_kept(message):
            self.left_out_context += 1
            return None
        return message

    def _is_context_kept(self, message: RecordedMessage) -> bool:
        if not self._same_agent:
            return bool(_WORDS_OF_COMMAND.search(message.text))
        if self._kept_context is KeptContext.OWN_LINES:
            # It shows most of what it added from lines of its own, not from messages.
            is_of_own_line = message.text.startswith(SHOWED)
            return message.beside and (not is_of_own_line or message.text in self._own_texts)
        if self._kept_context is KeptContext.BESIDE:
            return message.beside
        return self._kept_context is KeptContext.BESIDE_AND_SYSTEM

    def _translate_reply(self, message: RecordedMessage) -> RecordedMessage | None:
        """Return a reply for the target, or None if nothing of it is left."""
        calls = self._translate_calls(message)
        becomes_text = None in calls.values()
        parts: list[ReplyPart] = []
        for part in message.parts:
            if isinstance(part, Text):
                parts.append(part)
            elif isinstance(part, Reasoning):
                if part.opaque and part.provider == self._provider:
                    parts.append(part)
                else:
                    self.left_out_reasoning += 1
            else:
                call = calls[part.id]
                if call is None or becomes_text:
                    self._texts[part.id] = part.name
                    self.as_text += 1
                    parts.append(Text(f"[Call of the tool {part.name}]\n{part.arguments}"))
                else:
                    parts.append(call)
        parts_with_content = [part for part in parts if _says_something(part)]
        if not parts_with_content:
            return None
        return build_recorded_reply(
            parts, model=message.model, time=message.time, usage=message.usage
        )

    def _translate_calls(self, message: RecordedMessage) -> dict[str, ToolCall | None]:
        """Return the calls for the target, by id. None stands for one that does not translate."""
        calls: dict[str, ToolCall | None] = {}
        for part in message.parts:
            if not isinstance(part, ToolCall):
                continue
            # Hidden calls are answered by the gateway: the agent does not have these tools.
            is_own_call = self._was_connected and part.name not in HIDDEN_TOOLS
            if self._same_agent or is_own_call:
                calls[part.id] = part
            else:
                calls[part.id] = translate_call(part, self._target)
        return calls


def _says_something(part: ReplyPart) -> bool:
    if isinstance(part, ToolCall):
        return True
    return isinstance(part, Text) and bool(part.text.strip())
