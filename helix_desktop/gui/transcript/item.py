"""One thing in the chat, as a plain value: what it is, and all that is known of a tool call."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from helix_desktop.engine.events import Stage
from helix_desktop.engine.facts import (
    Decided,
    Fact,
    Folded,
    ModelReplied,
    Reasoning,
    Recorded,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.values import dataclass


class ItemKind(IntEnum):
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


class Item(NamedTuple):
    """One thing in the chat. `head`: the first words of the model after the user's, which carry its name."""

    kind: ItemKind
    recorded: Recorded | None
    part: int = 0
    text: str = ""
    head: bool = False

    @property
    def seq(self) -> int:
        return self.recorded.seq if self.recorded else 0

    @property
    def fact(self) -> Fact | None:
        return self.recorded.fact if self.recorded else None


@dataclass(frozen=True, slots=True)
class Change:
    """Items from `tail` on are new or gone; those in `changed` look different. Hidden ones may have changed anywhere."""

    tail: int
    changed: frozenset[int] = frozenset()
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class CallState:
    """All that is known of a tool call. `said`: since when it runs; `waiting`: for the user's permission."""

    call: ToolCall
    said: float
    returned: ToolReturned | None = None
    returned_seq: int = 0
    fold: Folded | None = None
    argument_fold: Folded | None = None
    decided: Decided | None = None
    running: bool = False
    shown: str = ""
    waiting: bool = False
    stage: Stage = Stage.RUNNING


def text_of(item: Item) -> str:
    """The Markdown source of an item that has one."""
    fact = item.fact
    if isinstance(fact, UserSaid) and item.kind is ItemKind.USER:
        return "\n\n".join(part.text for part in fact.parts if isinstance(part, Text))
    if isinstance(fact, ModelReplied) and item.kind in {ItemKind.REPLY, ItemKind.REASONING}:
        part = fact.parts[item.part]
        return part.text if isinstance(part, Text | Reasoning) else ""
    return item.text
