"""Translates tool calls between agents if they correspond, or else into text that describes them.

A call is only translated if all arguments have counterparts, so nothing is misrepresented.
"""

import json
import re
import shlex
from dataclasses import replace

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.histories.claude_code_history import SHOWED
from helix_desktop.histories.recorded_session import RecordedMessage, build_recorded_reply
from helix_desktop.json_values import parse_json_or_none
from helix_desktop.resources import read_table

CLAUDE_CODE, CODEX, OPENCODE, GEMINI_CLI, PI = (
    "claude-code",
    "codex",
    "opencode",
    "gemini-cli",
    "pi",
)
_TABLE = read_table("agent_tools")
_ACTS = {name: act for act, names in _TABLE["acts"].items() for name in names.split()}
_ARGUMENTS = {
    name: meaning for meaning, names in _TABLE["arguments"].items() for name in names.split()
}
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
_TARGETS = _TABLE[
    "tools"
]  # By agent and act: the name of the tool, and what it calls each argument.
# These agents store added context as messages, so it is written back. Others add it anew.
_KEEPS_OWN_CONTEXT = (CODEX, OPENCODE, PI)


def translate_call(call: ToolCall, target_agent: str) -> ToolCall | None:
    """Return the call to the target's own tool, or None if no tool takes these arguments."""
    act = _ACTS.get(call.name, "")
    tool = _TARGETS[target_agent].get(act)
    arguments = _canonical_arguments(call.arguments)
    if tool is None or arguments is None or set(arguments) - {"folder"} != _NEEDED[act]:
        return None
    if "folder" in arguments:
        if act != "command":
            return None
        arguments["command"] = (
            f"cd {shlex.quote(arguments.pop('folder'))} && {arguments['command']}"
        )
    written = {tool[key]: value for key, value in arguments.items()}
    return replace(call, name=tool["name"], arguments=json.dumps(written, ensure_ascii=False))


def edited_files_of_call(call: ToolCall) -> list[str]:
    """Return the files that a call of an agent writes or edits, also by a patch in Codex's form."""
    given = parse_json_or_none(call.arguments)
    if not isinstance(given, dict) or _ACTS.get(call.name) not in ("write", "edit"):
        return _PATCHED.findall(call.arguments)
    return [str(value) for name, value in given.items() if _ARGUMENTS.get(name) == "path"]


def _canonical_arguments(arguments_text: str) -> dict[str, str] | None:
    """Return the arguments by common names, or None if one is unknown or is not a text."""
    if (given := parse_json_or_none(arguments_text or "{}")) is None:
        return None
    found: dict[str, str] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        if name in _WITHOUT_EFFECT:
            continue
        words = _command_line_of_words(value) if isinstance(value, list) else value
        if name not in _ARGUMENTS or not isinstance(words, str):
            return None
        found[_ARGUMENTS[name]] = words
    return found


def _command_line_of_words(words: list[object]) -> str | None:
    if not all(isinstance(word, str) for word in words):
        return None
    plain = [str(word) for word in words]
    is_shell = (
        len(plain) == 3
        and plain[0].rpartition("/")[2] in ("bash", "sh", "zsh")
        and plain[1] in ("-c", "-lc")
    )
    return plain[2] if is_shell else shlex.join(plain)


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
        provider: str,
        own_texts: frozenset[str] = frozenset(),
    ) -> None:
        """`own_texts`: what lines of the target's own say, which can be written again."""
        self._target = target
        self._same_agent = same_agent
        self._provider = provider
        self._own_texts = own_texts
        # Tools whose calls became text, by call id: their results become text, too.
        self._texts: dict[str, str] = {}
        self.left_out_reasoning = self.left_out_context = self.as_text = 0

    def translate_message(self, message: RecordedMessage) -> RecordedMessage | None:
        """Return the message for the target, or None if it is left out."""
        if message.role == "assistant":
            return self._translate_reply(message)
        if message.role == "tool" and message.answers in self._texts:
            name = self._texts.pop(message.answers)
            failed = "" if message.ok else ", which failed"
            text = f"[Result of the tool {name}{failed}]\n{message.text}"
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
        if self._target == CLAUDE_CODE:
            # It shows most of what it added from lines of its own, not from messages.
            is_of_own_line = message.text.startswith(SHOWED)
            return message.beside and (not is_of_own_line or message.text in self._own_texts)
        return self._target in _KEEPS_OWN_CONTEXT and (message.beside or self._target == CODEX)

    def _translate_reply(self, message: RecordedMessage) -> RecordedMessage | None:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        translated = {
            call.id: call if self._same_agent else translate_call(call, self._target)
            for call in calls
        }
        is_text = any(call is None for call in translated.values())
        parts: list[ReplyPart] = []
        for part in message.parts:
            if isinstance(part, Reasoning) and not (
                part.opaque and part.provider == self._provider
            ):
                self.left_out_reasoning += 1
            elif isinstance(part, ToolCall) and is_text:
                self._texts[part.id], self.as_text = part.name, self.as_text + 1
                parts.append(Text(f"[Call of the tool {part.name}]\n{part.arguments}"))
            else:
                found = translated[part.id] if isinstance(part, ToolCall) else part
                parts.extend([found] if found is not None else [])
        if not any(
            isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip())
            for part in parts
        ):
            return None
        return build_recorded_reply(
            parts, model=message.model, time=message.time, usage=message.usage
        )
