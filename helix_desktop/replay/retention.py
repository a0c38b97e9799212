"""Measures how many identifiers that the agent uses were still in its view.

Only those count that had occurred before. Handovers, observations and truncations do not count as
showing them. For plain retention, markers and lists of names do not, either.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from helix_desktop.engine.facts import Attachment, Reasoning, Stored, Text, ToolCall
from helix_desktop.engine.messages import Block, ContextKind
from helix_desktop.histories.recorded_session import RecordedMessage, message_texts

IDENTIFIER = re.compile(r"[A-Za-z_][\w./-]{9,80}")
SUMMARIES = (ContextKind.HANDOVER, ContextKind.OBSERVATIONS)
_NAMES_ONLY = re.compile(
    r'^\[CACHED\][^\n]*\n?[^\n]*$|^Names in it: .*$|\[CACHED\](?:[^"\\\n]|\\.)*', re.MULTILINE
)

Resolve = Callable[[Stored], str]


class ReferenceRetention:
    """Counts, over one session, the identifiers of replies and whether the view had them."""

    def __init__(self, resolve: Resolve) -> None:
        self.used = 0
        self.standing = 0
        self.standing_plain = 0
        self._resolve = resolve
        # All identifiers of the session so far.
        self._earlier_identifiers: set[str] = set()
        # By the id of each block of the view: the block, its identifiers, and its plain ones,
        # which are those outside markers and lists of names.
        self._shown_blocks: dict[int, tuple[Block, frozenset[str], frozenset[str]]] = {}
        # In how many blocks of the view each identifier stands, and in how many plainly.
        self._shown_counts: Counter[str] = Counter()
        self._plain_counts: Counter[str] = Counter()
        self._identifiers_by_text: dict[str, frozenset[str]] = {}

    def remember_identifiers_of(self, message: RecordedMessage) -> None:
        for text in message_texts(message):
            self._earlier_identifiers |= self._identifiers_in(text)

    def set_current_view(self, blocks: Iterable[Block]) -> None:
        """Set what the model is shown before its next reply.

        The next view has most of the blocks of this one. So only what has gone and what is new
        is counted.
        """
        blocks_by_id = {id(block): block for block in blocks}
        for block_id in self._shown_blocks.keys() - blocks_by_id.keys():
            _, names, plain_names = self._shown_blocks.pop(block_id)
            self._shown_counts.subtract(names)
            self._plain_counts.subtract(plain_names)
        for block_id in blocks_by_id.keys() - self._shown_blocks.keys():
            block = blocks_by_id[block_id]
            names, plain_names = self._all_identifiers_and_unmarked_ones(block)
            self._shown_blocks[block_id] = (block, names, plain_names)
            self._shown_counts.update(names)
            self._plain_counts.update(plain_names)

    def count_known_identifiers_in(self, reply: RecordedMessage) -> None:
        """Count the reply's identifiers that occurred before, and those that the view shows."""
        names_in_reply: set[str] = set()
        for text in message_texts(reply):
            names_in_reply |= self._identifiers_in(text)
        for name in names_in_reply & self._earlier_identifiers:
            self.used += 1
            if self._shown_counts[name] > 0:
                self.standing += 1
            if self._plain_counts[name] > 0:
                self.standing_plain += 1

    def _all_identifiers_and_unmarked_ones(
        self, block: Block
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return all identifiers, and those outside markers and lists of names."""
        text = ""
        if block.kind not in SUMMARIES:
            text = self._text_shown_by(block)
        names = self._identifiers_in(text)
        if not block.fold:
            return names, names
        return names, self._identifiers_in(_NAMES_ONLY.sub("", text))

    def _text_shown_by(self, block: Block) -> str:
        """Return what a block says to the model."""
        match block.content:
            case Text(text=text) | Reasoning(text=text):
                return text
            case ToolCall(arguments=arguments):
                return arguments
            case Attachment(stored=stored) | (Stored() as stored):
                return self._resolve(stored)

    def _identifiers_in(self, text: str) -> frozenset[str]:
        if text not in self._identifiers_by_text:
            self._identifiers_by_text[text] = frozenset(IDENTIFIER.findall(text))
        return self._identifiers_by_text[text]
