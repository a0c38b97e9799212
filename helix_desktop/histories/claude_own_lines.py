"""Lines of Claude Code that are no messages, and that it needs to send the same request again.

What Claude Code showed the model besides messages (files that it read back, lists of
tools, reminders) is in `attachment` lines, and what a command of its own printed is in
`local_command` lines. An import stores these lines unchanged. On a restore, each goes
back to where it stood, so that the next request begins with the same bytes as before
and the provider's cache of it stays valid.

The result of a search for tools has references to the tools that it found. Claude Code sends a
tool whose loading is deferred only if a reference to it is in the session, so that they, too, come
back from the stored line.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.claude_code_history import has_loaded_tools, text_shown_by_line
from helix_desktop.histories.history_rows import parse_time
from helix_desktop.json_values import (
    list_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)


@dataclass(frozen=True, slots=True)
class ClaudeOwnLine:
    """`text`: the message that a reading of the line gives, or "" if the model does not see it."""

    value: dict[str, object]
    text: str
    time: float


@dataclass(slots=True)
class ClaudeOwnLines:
    """The lines in the order of the file. The first `taken_count` of them were given back.

    `loaded_tools`: by the id of the call that searched for them, its result's content.
    """

    lines: list[ClaudeOwnLine] = field(default_factory=list)
    loaded_tools: dict[str, list[object]] = field(default_factory=dict)
    taken_count: int = 0

    @classmethod
    def from_stored_lines(cls, stored: Iterable[bytes]) -> "ClaudeOwnLines":
        """Return the program's own lines among those that imports have stored."""
        lines: list[ClaudeOwnLine] = []
        loaded_tools: dict[str, list[object]] = {}
        for stored_line in stored:
            line_text = stored_line.decode("utf-8", "replace")
            value = object_at(parse_json_or_none(line_text))
            for block in objects_at(value, "message", "content"):
                if has_loaded_tools(block):
                    call_id = text_at(block, "tool_use_id")
                    loaded_tools[call_id] = list_at(block, "content")
            is_attachment = value.get("type") == "attachment"
            is_local_command = value.get("subtype") == "local_command"
            if is_attachment or is_local_command:
                value_to_keep = _without_ids_of_session(value)
                shown_text = text_shown_by_line(value)
                time = parse_time(value.get("timestamp"))
                lines.append(ClaudeOwnLine(value=value_to_keep, text=shown_text, time=time))
        return cls(lines, loaded_tools)

    def pop_lines_up_to(self, text: str) -> list[dict[str, object]]:
        """Return the next line that says `text`, behind those that say nothing. Lines that say
        something else on the way are no part of the conversation any more.
        """
        unseen_lines: list[dict[str, object]] = []
        for position in range(self.taken_count, len(self.lines)):
            line = self.lines[position]
            if line.text == text:
                self.taken_count = position + 1
                return unseen_lines + [line.value]
            if not line.text:
                unseen_lines.append(line.value)
        return []

    def pop_unseen_lines_before(self, time: float) -> list[dict[str, object]]:
        """Return the next lines that the model does not see, if they are older than `time`."""
        unseen: list[dict[str, object]] = []
        while self.taken_count < len(self.lines):
            line = self.lines[self.taken_count]
            if line.text or line.time > time:
                break
            unseen.append(line.value)
            self.taken_count += 1
        return unseen


def texts_of_own_lines(stored: Iterable[bytes]) -> frozenset[str]:
    """Return the messages that these lines can say again."""
    texts: set[str] = set()
    for line in ClaudeOwnLines.from_stored_lines(stored).lines:
        if line.text:
            texts.add(line.text)
    return frozenset(texts)


def _without_ids_of_session(value: Mapping[str, object]) -> dict[str, object]:
    """Return the line without the fields that say where it stands in which session."""
    remaining_fields = dict(value)
    for name in ("uuid", "parentUuid", "sessionId", "logicalParentUuid"):
        remaining_fields.pop(name, None)
    return remaining_fields
