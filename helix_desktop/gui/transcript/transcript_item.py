"""One thing in the chat, as a plain value, and all that is known of a tool call."""

from enum import IntEnum
from typing import NamedTuple

from helix_desktop.engine import facts
from helix_desktop.engine.session_events import CallStage
from helix_desktop.fast_dataclass import dataclass


class TranscriptItemKind(IntEnum):
    USER = 0
    REPLY = 1
    REASONING = 2
    CALL = 3
    FOLD = 4
    NOTE = 5
    PLAN = 6
    REWOUND = 7
    LIVE_REPLY = 8
    LIVE_REASONING = 9
    LIVE_CALL = 10
    WAITING = 11
    CHANGES = 12
    ERROR = 13
    ADDITION = 14
    LIVE_NOTE = 15


class TranscriptItem(NamedTuple):
    """One thing in the chat. `is_first_of_answer`: the model's first words after the
    user's, which show its name.
    """

    kind: TranscriptItemKind
    recorded: facts.Recorded | None
    part: int = 0
    text: str = ""  # Of a user's message: the user's own words, if an agent added others.
    is_first_of_answer: bool = False

    @property
    def fact_seq(self) -> int:
        if self.recorded is None:
            return 0
        return self.recorded.seq

    @property
    def source_fact(self) -> facts.Fact | None:
        if self.recorded is None:
            return None
        return self.recorded.fact


@dataclass(frozen=True, slots=True)
class ItemChanges:
    """Items from `first_new` on are new or were removed. `changed_items` look different."""

    first_new: int
    changed_items: frozenset[int] = frozenset()
    is_visibility_changed: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallState:
    """The state of a tool call. `begun_at`: when it started, by the monotonic
    clock, or 0 if it does not run. `waiting`: it waits for permission.
    """

    call: facts.ToolCall
    begun_at: float
    returned: facts.ToolReturned | None = None
    returned_seq: int = 0
    fold: facts.Folded | None = None
    argument_fold: facts.Folded | None = None
    decided: facts.Decided | None = None
    running: bool = False
    printed_text: str = ""
    waiting: bool = False
    stage: CallStage = CallStage.RUNNING


def item_source_text(item: TranscriptItem) -> str:
    fact = item.source_fact
    if isinstance(fact, facts.UserSaid) and item.kind is TranscriptItemKind.USER:
        texts = [part.text for part in fact.parts if isinstance(part, facts.Text)]
        return item.text or "\n\n".join(texts)
    is_of_reply = item.kind in {TranscriptItemKind.REPLY, TranscriptItemKind.REASONING}
    if isinstance(fact, facts.ModelReplied) and is_of_reply:
        part = fact.parts[item.part]
        if isinstance(part, facts.Text | facts.Reasoning):
            return part.text
        return ""
    return item.text
