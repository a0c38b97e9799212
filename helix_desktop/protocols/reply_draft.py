"""Assembles a reply from the pieces of a stream.

Providers identify a piece's part in different ways (an index, an item's id, or not at all). The
draft keeps parts by a `key` that the provider's module chooses, in the order in which they began.
"""

import re
import secrets
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Literal

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.engine.messages import CallDelta, Delta, ReasoningDelta, TextDelta
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, format_json_value

UNNAMED = "unnamed"  # The name of a nameless call. The model then hears that there is no such tool.
LOST = "\N{REPLACEMENT CHARACTER}"
_HALVES = re.compile("[\ud800-\udfff]")
# A model of today writes half a million characters at most. A server that never ends its
# reply took 429 MB in 45 seconds.
MOST_CHARACTERS = 8_000_000
MOST_CALLS = 1_000  # No model makes this many calls in one reply.
SHORTEST_UNIQUE = 9  # In characters. Local servers reuse shorter ids ("0", "call_0") in each reply.


class ReplyTooLong(ValueError):
    """A model's reply does not end. `most_characters`: how long one may be."""

    def __init__(self, most_characters: int) -> None:
        super().__init__(f"a reply of more than {most_characters:,} characters")
        self.most_characters = most_characters


@dataclass(slots=True)
class _DraftPart:
    """One part of the reply, as far as it has come. `opaque`: what the provider needs back with
    its reasoning. `half`: the first half of a surrogate pair, kept for the second.
    """

    kind: Literal["text", "reasoning", "call"]
    pieces: list[str] = field(default_factory=list)
    opaque: str = ""
    id: str = ""
    name: str = ""
    index: int = 0
    half: str = ""

    def add_piece(self, piece: str) -> str:
        """Add a piece, and return what can be shown of it now.

        JSON writes a rare character, such as an emoji, as two halves (a surrogate pair), and a
        server may split it between two pieces. The first half then waits for the second.
        """
        received = self.half + piece
        self.half = ""
        ends_with_first_half = "\ud800" <= received[-1:] <= "\udbff"
        if ends_with_first_half:
            self.half = received[-1]
            received = received[:-1]
        shown_text = received
        if _HALVES.search(received):
            # UTF-16 writes such characters as their halves, so reading it again joins them.
            halves = received.encode("utf-16-le", "surrogatepass")
            shown_text = halves.decode("utf-16-le", "replace")
        if shown_text:
            self.pieces.append(shown_text)
        return shown_text


def _random_id() -> str:
    return secrets.token_hex(8)


class ReplyDraft:
    """The parts of a reply that have come so far.

    `provider` marks the reasoning, so that only this provider gets it back.
    """

    def __init__(self, provider: str, new_id: Callable[[], str] = _random_id) -> None:
        self._provider = provider
        self._new_id = new_id
        self._parts: dict[Hashable, _DraftPart] = {}
        self._call_ids: set[str] = set()
        self._characters = 0

    @property
    def has_begun(self) -> bool:
        """Whether there is any text or call yet."""
        for part in self._parts.values():
            if part.pieces or part.name:
                return True
        return False

    @property
    def call_count(self) -> int:
        return len(self._call_ids)

    @property
    def last_key(self) -> Hashable:
        """Return the key of the part that began last, or None if none has."""
        if not self._parts:
            return None
        return next(reversed(self._parts))

    def first_key_of_kind(self, kind: str) -> Hashable:
        for key, part in self._parts.items():
            if part.kind == kind:
                return key
        return None

    def kind_of_part(self, key: Hashable) -> str:
        """Return a part's kind, or an empty string if there is no such part."""
        part = self._parts.get(key)
        if part is None:
            return ""
        return part.kind

    def add_text(self, key: Hashable, piece: str) -> list[Delta]:
        """Begin or continue a text, and return what can be shown of it now."""
        if not piece:
            return []
        part = self._parts.setdefault(key, _DraftPart("text"))
        shown_text = self._add_piece(part, piece)
        if not shown_text:
            return []
        return [TextDelta(shown_text)]

    def add_reasoning(self, key: Hashable, piece: str) -> list[Delta]:
        """Begin or continue reasoning, and return what can be shown of it now."""
        part = self._parts.setdefault(key, _DraftPart("reasoning"))
        shown_text = self._add_piece(part, piece)
        if not shown_text:
            return []
        return [ReasoningDelta(shown_text)]

    def _add_piece(self, part: _DraftPart, piece: str) -> str:
        """Add a piece to its part. Raises ReplyTooLong if the whole reply is too long."""
        self._characters += len(piece)
        if self._characters > MOST_CHARACTERS:
            raise ReplyTooLong(MOST_CHARACTERS)
        return part.add_piece(piece)

    def seal_reasoning(self, key: Hashable, /, **needed: Json) -> None:
        """Keep what the provider needs back with this reasoning, such as its signature.

        It replaces what was kept before.
        """
        part = self._parts.setdefault(key, _DraftPart("reasoning"))
        part.opaque = format_json_value(needed)

    def add_call_piece(
        self, key: Hashable, *, call_id: str = "", name: str = "", arguments: str = ""
    ) -> list[Delta]:
        """Begin or continue a call of a tool, and return what is new to show: its name, or a
        piece of its arguments.
        """
        part = self._parts.get(key)
        if part is None:
            part = _DraftPart("call", index=self.call_count, id=self._unique_call_id(call_id))
            self._parts[key] = part
        is_first_delta = not part.name and bool(name)
        if is_first_delta:
            part.name = name
        shown_arguments = self._add_piece(part, arguments)
        if not is_first_delta and not shown_arguments:
            return []
        return [CallDelta(part.index, part.id, part.name, shown_arguments)]

    def set_whole_arguments(self, key: Hashable, arguments: str) -> list[Delta]:
        """Set the complete arguments that come at the end. Only what is new becomes a delta."""
        part = self._parts[key]
        streamed_arguments = "".join(part.pieces)
        if arguments == streamed_arguments:
            return []
        part.pieces = [arguments]
        # Arguments that do not continue the streamed ones are told from their beginning.
        new_arguments = arguments.removeprefix(streamed_arguments)
        return [CallDelta(part.index, part.id, part.name, new_arguments)]

    def finished_parts(self, *, cut: bool = False) -> tuple[ReplyPart, ...]:
        """Return the parts so far. A cut-off call without arguments is left out, as it
        would look complete.
        """
        reply_parts: list[ReplyPart] = []
        for draft_part in self._parts.values():
            reply_part = self._finish_part(draft_part, cut=cut)
            if reply_part is not None:
                reply_parts.append(reply_part)
        return tuple(reply_parts)

    def _finish_part(self, part: _DraftPart, *, cut: bool) -> ReplyPart | None:
        """Return a part of the reply, or None for one that must be left out.

        `cut`: the reply broke off. Then a call may be half a call, and must not be run.
        """
        content = "".join(part.pieces)
        if part.half:
            content += LOST  # The second half of the character never came.
        if part.kind == "text":
            return Text(content)
        if part.kind == "reasoning":
            if not content and not part.opaque:
                return None
            return Reasoning(content, opaque=part.opaque, provider=self._provider)
        is_whole_call = bool(part.name and content)
        if cut and not is_whole_call:
            return None
        return ToolCall(part.id, part.name or UNNAMED, content or "{}")

    def _unique_call_id(self, call_id: str) -> str:
        """Return the provider's id of a call, or a longer one if other replies may have it, too."""
        if len(self._call_ids) >= MOST_CALLS:
            raise ValueError("too many calls in one reply")
        unique_id = call_id
        if len(call_id) < SHORTEST_UNIQUE or call_id in self._call_ids:
            unique_id = f"{call_id or 'call'}_{self._new_id()}"
        self._call_ids.add(unique_id)
        return unique_id
