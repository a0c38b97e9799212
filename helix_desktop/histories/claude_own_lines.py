"""Lines of Claude Code that are no messages, and that it needs to send the same request again.

What Claude Code showed the model besides messages (files that it read back, lists of
tools, reminders) is in `attachment` lines, and what a command of its own printed is in
`local_command` lines. An import stores these lines unchanged. On a restore, each goes
back to where it stood, so that the next request begins with the same bytes as before
and the provider's cache of it stays valid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.claude_code_history import text_shown_by_line
from helix_desktop.histories.history_rows import parse_time
from helix_desktop.json_values import object_at, parse_json_or_none


@dataclass(frozen=True, slots=True)
class ClaudeOwnLine:
    """`text`: the message that a reading of the line gives, or "" if the model does not see it."""

    value: dict[str, object]
    text: str
    time: float


@dataclass(slots=True)
class ClaudeOwnLines:
    """The lines in the order of the file. Those before `taken` were given back."""

    lines: list[ClaudeOwnLine] = field(default_factory=list)
    taken: int = 0

    @classmethod
    def from_stored_lines(cls, stored: Iterable[bytes]) -> "ClaudeOwnLines":
        lines = []
        for line in stored:
            value = object_at(parse_json_or_none(line.decode("utf-8", "replace")))
            is_attachment = value.get("type") == "attachment"
            if is_attachment or value.get("subtype") == "local_command":
                time = parse_time(value.get("timestamp"))
                text = text_shown_by_line(value)
                lines.append(ClaudeOwnLine(_without_place_in_session(value), text, time))
        return cls(lines)

    def take_lines_up_to(self, text: str) -> list[dict[str, object]]:
        """Return the next line that says `text`, behind those that say nothing. Lines that say
        something else on the way are no part of the conversation any more.
        """
        for position in range(self.taken, len(self.lines)):
            if self.lines[position].text == text:
                passed = self.lines[self.taken : position]
                self.taken = position + 1
                unseen = [line.value for line in passed if not line.text]
                return [*unseen, self.lines[position].value]
        return []

    def take_unseen_lines_before(self, time: float) -> list[dict[str, object]]:
        """Return the next lines that the model does not see, if they are older than `time`."""
        unseen: list[dict[str, object]] = []
        while self.taken < len(self.lines):
            line = self.lines[self.taken]
            if line.text or line.time > time:
                break
            unseen.append(line.value)
            self.taken += 1
        return unseen


def texts_of_own_lines(stored: Iterable[bytes]) -> frozenset[str]:
    """Return the messages that these lines can say again."""
    lines = ClaudeOwnLines.from_stored_lines(stored).lines
    return frozenset(line.text for line in lines if line.text)


def _without_place_in_session(value: Mapping[str, object]) -> dict[str, object]:
    places = ("uuid", "parentUuid", "sessionId", "logicalParentUuid")
    return {name: one for name, one in value.items() if name not in places}
