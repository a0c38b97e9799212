"""The story of a conversation in figures: tokens at every step, and every fold. Plain Python, one pass over the facts.

What a request took is what the provider reported; between reports, and where nothing is reported, it is what the facts
add up to. A batch of folds is one event: one change of the prefix, one row of the list.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helix_desktop.engine.facts import (
    ConversationStarted,
    DetailsKept,
    DocumentEdited,
    Folded,
    FoldKind,
    ModelReplied,
    ModelSet,
    PolicySet,
    Recorded,
    Refolded,
    Rewound,
    RulesSet,
    SystemSet,
    ToolReturned,
    ToolsOffered,
    Unfolded,
    UserSaid,
)


@dataclass(slots=True)
class Event:
    """One row of the list. `point`: where the chart has it. Without folds: the conversation began."""

    seq: int
    time: float
    point: int
    folds: list[Folded] = field(default_factory=list)
    conversation: str = ""
    words: str = ""

    @property
    def before(self) -> int:
        return sum(fold.tokens_before for fold in self.folds)

    @property
    def after(self) -> int:
        return sum(fold.tokens for fold in self.folds)

    @property
    def kind(self) -> FoldKind | None:
        return self.folds[0].kind if self.folds else None

    @property
    def name(self) -> str:
        """The fold that stands for the event."""
        return self.folds[0].fold if self.folds else ""


@dataclass(slots=True)
class Totals:
    """What was sent, and what it would have been without any fold."""

    sent: int = 0
    unmanaged: int = 0
    steps: int = 0


class Story:
    """`points` are tokens; `seqs` and `times` belong to them. `steps[i]` counts the model's replies up to point i."""

    def __init__(self) -> None:
        self.points = array("q")
        self.seqs = array("q")
        self.times = array("d")
        self.steps = array("q")
        self.events: list[Event] = []
        self.window = 0
        self.totals = Totals()
        self.dead: set[str] = set()
        self.edited: dict[str, str] = {}
        self._now = 0
        self._all = 0
        self._fixed: dict[str, int] = {}
        self._folds: dict[str, Folded] = {}
        self._event_of: dict[str, Event] = {}
        self._batches: dict[str, Event] = {}

    def extend(self, facts: Iterable[Recorded]) -> None:
        for recorded in facts:
            self.advance(recorded)

    def advance(self, recorded: Recorded) -> bool:
        """One more fact; True when a point or an event came with it."""
        fact = recorded.fact
        if isinstance(fact, ToolReturned):
            self._now += fact.tokens
            self._all += fact.tokens
            return False
        if isinstance(fact, ModelReplied):
            self._replied(recorded, fact)
            return True
        if isinstance(fact, UserSaid):
            self._add(sum(part.tokens for part in fact.parts))
            return False
        step = _STEPS.get(type(fact))
        return step(self, recorded, fact) if step is not None else False

    def live(self, event: Event) -> bool:
        """Whether any fold of an event is in force."""
        return any(fold.fold not in self.dead for fold in event.folds)

    def event_of(self, fold: str) -> Event | None:
        return self._event_of.get(fold)

    def handover_before(self, event: Event) -> Event | None:
        """The handover that an event's document updates."""
        earlier = [each for each in self.events if each.kind is FoldKind.HANDOVER and each.seq < event.seq]
        return earlier[-1] if earlier else None

    # --- below

    def _add(self, tokens: int) -> None:
        self._now += tokens
        self._all += tokens

    def _replied(self, recorded: Recorded, fact: ModelReplied) -> None:
        usage, totals = fact.usage, self.totals
        sent = self._now = usage.input if usage.input > 0 else self._now
        totals.steps += 1
        totals.sent += sent
        totals.unmanaged += max(sent, self._all)
        self._point(recorded)
        for part in fact.parts:
            self._now += part.tokens
            self._all += part.tokens

    def _point(self, recorded: Recorded) -> None:
        self.points.append(max(self._now, 0))
        self.seqs.append(recorded.seq)
        self.times.append(recorded.time)
        self.steps.append(self.totals.steps)

    def _fix(self, name: str, tokens: int) -> bool:
        """A part that is there once and replaced: the system prompt, the tools, a rules file."""
        change = tokens - self._fixed.get(name, 0)
        self._fixed[name] = tokens
        self._add(change)
        return False

    def _fold(self, recorded: Recorded, fact: Folded) -> bool:
        self._folds[fact.fold] = fact
        event = self._batches.get(fact.batch) if fact.batch else None
        if event is None:
            if fact.kind is not FoldKind.EXCERPT and self.points and self.points[-1] != self._now:
                self._point(recorded)
            event = Event(recorded.seq, recorded.time, len(self.points), [], recorded.conversation)
            self.events.append(event)
            if fact.batch:
                self._batches[fact.batch] = event
        event.folds.append(fact)
        self._event_of[fact.fold] = event
        self._now += fact.tokens - fact.tokens_before
        if event.point < len(self.points):
            self.points[event.point] = max(self._now, 0)
        else:
            self._point(recorded)
        return True

    def _switch(self, recorded: Recorded, fold: str, *, live: bool) -> bool:
        folded = self._folds.get(fold)
        if folded is None or (fold not in self.dead) == live:
            return False
        (self.dead.discard if live else self.dead.add)(fold)
        saved = folded.tokens_before - folded.tokens
        self._now += -saved if live else saved
        self._point(recorded)
        return True

    def _rewind(self, recorded: Recorded, fact: Rewound) -> bool:
        before = bisect_right(self.seqs, fact.to) - 1
        self._now = self.points[before] if before >= 0 else 0
        self.dead |= {name for name, event in self._event_of.items() if event.seq > fact.to}
        self._point(recorded)
        return True

    def _start(self, recorded: Recorded, fact: ConversationStarted) -> bool:
        self.events.append(Event(recorded.seq, recorded.time, 0, [], recorded.conversation))
        return True

    def _model(self, fact: ModelSet) -> bool:
        if fact.role == "main" and fact.window:
            self.window = fact.window
        return False

    def _policy(self, fact: PolicySet) -> bool:
        if self.events and not self.events[0].words:
            self.events[0].words = fact.preset
        return False

    def _edit(self, fact: DocumentEdited) -> bool:
        """It is as long as it is now; the details were counted in what was there before."""
        self.edited[fact.fold] = fact.text
        before = self._folds.get(fact.fold)
        if before is not None:
            edited = self._folds[fact.fold] = replace(before, tokens=fact.tokens, details=DetailsKept())
            folds = self._event_of[fact.fold].folds
            folds[folds.index(before)] = edited
            if fact.fold not in self.dead:
                self._now += edited.tokens - before.tokens
        return True


def merged(stories: Sequence[Story]) -> list[Event]:
    """The events of several conversations, the newest first."""
    return sorted((event for story in stories for event in story.events), key=lambda event: -event.time)


_STEPS: dict[type, Callable[[Story, Recorded, Any], bool]] = {
    Folded: lambda story, recorded, fact: story._fold(recorded, fact),  # noqa: SLF001 - the table belongs to the class
    Unfolded: lambda story, recorded, fact: story._switch(recorded, fact.fold, live=False),  # noqa: SLF001
    Refolded: lambda story, recorded, fact: story._switch(recorded, fact.fold, live=True),  # noqa: SLF001
    Rewound: lambda story, recorded, fact: story._rewind(recorded, fact),  # noqa: SLF001
    ConversationStarted: lambda story, recorded, fact: story._start(recorded, fact),  # noqa: SLF001
    SystemSet: lambda story, _, fact: story._fix("system", fact.tokens),  # noqa: SLF001
    RulesSet: lambda story, _, fact: story._fix(fact.path, fact.tokens),  # noqa: SLF001
    ToolsOffered: lambda story, _, fact: story._fix("tools", fact.tokens),  # noqa: SLF001
    ModelSet: lambda story, _, fact: story._model(fact),  # noqa: SLF001
    PolicySet: lambda story, _, fact: story._policy(fact),  # noqa: SLF001
    DocumentEdited: lambda story, _, fact: story._edit(fact),  # noqa: SLF001
}
