"""How much of what the agent uses still stood in the view it worked from.

Of the identifiers in a reply and its arguments that had occurred earlier in the session, the share that stood in the
view the reply was made from. Handovers, observations and truncations count as nothing, whatever they say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from helix_desktop.engine.blocks import Block, Kind, Role
from helix_desktop.engine.facts import Attachment, Reasoning, Stored, Text, ToolCall
from helix_desktop.histories.recording import RecordedMessage, texts

IDENTIFIER = re.compile(r"[A-Za-z_][\w./-]{9,80}")
SUMMARIES = (Kind.HANDOVER, Kind.OBSERVATIONS)

Resolve = Callable[[Stored], str]


class Retention:
    """The count over one session. `show` takes each step's view, `uses` what the reply to it says."""

    def __init__(self, resolve: Resolve) -> None:
        self.used = 0
        self.standing = 0
        self._resolve = resolve
        self._earlier: set[str] = set()
        self._shown: dict[int, tuple[Block, frozenset[str]]] = {}
        self._counts: Counter[str] = Counter()
        self._found: dict[str, frozenset[str]] = {}

    @property
    def share(self) -> float:
        """1 where nothing was used again."""
        return self.standing / self.used if self.used else 1.0

    def heard(self, message: RecordedMessage) -> None:
        """A message of the session: what it names has occurred from now on."""
        for text in texts(message):
            self._earlier |= self._identifiers(text)

    def show(self, blocks: Iterable[Block]) -> None:
        """The view the next reply is made from. Views share their blocks, so only what changed is looked at."""
        now = {id(block): block for block in blocks if block.role is not Role.SYSTEM}
        for key in self._shown.keys() - now.keys():
            self._counts.subtract(self._shown.pop(key)[1])
        for key in now.keys() - self._shown.keys():
            names = self._names(now[key])
            self._shown[key] = (now[key], names)
            self._counts.update(names)

    def uses(self, reply: RecordedMessage) -> None:
        """The reply made from the view shown last."""
        named: set[str] = set()
        for text in texts(reply):
            named |= self._identifiers(text)
        known = named & self._earlier
        self.used += len(known)
        self.standing += sum(self._counts[name] > 0 for name in known)

    def _names(self, block: Block) -> frozenset[str]:
        if block.kind in SUMMARIES:
            return frozenset()
        match block.content:
            case Text(text=text) | Reasoning(text=text):
                return self._identifiers(text)
            case ToolCall(arguments=arguments):
                return self._identifiers(arguments)
            case Attachment(stored=stored) | (Stored() as stored):
                return self._identifiers(self._resolve(stored))

    def _identifiers(self, text: str) -> frozenset[str]:
        if text not in self._found:
            self._found[text] = frozenset(IDENTIFIER.findall(text))
        return self._found[text]
