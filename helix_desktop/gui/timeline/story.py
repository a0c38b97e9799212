"""The story of a conversation: its points and its events, placed. What they say is the engine's (`engine/history`).

A point stands at every step and at every change of the prefix. A step is what its request took; a change is what the view
counted after it, times the model's factor. A batch of folds is one event: one change of the prefix, one row of the list.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import field

from helix_desktop.engine.facts import (
    ConversationStarted,
    DocumentEdited,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    PolicySet,
    Recorded,
    Refolded,
    Rewound,
    Unfolded,
)
from helix_desktop.engine.view import State
from helix_desktop.values import dataclass


@dataclass(slots=True)
class Event:
    """One row of the list. `point`: where the chart has it. Without folds: the conversation began."""

    history: State
    seq: int
    time: float
    point: int
    made: list[Folded] = field(default_factory=list)
    conversation: str = ""
    words: str = ""

    @property
    def folds(self) -> list[Folded]:
        """As they stand now: the user may have worded them anew."""
        return [self.history.fold(fold.fold) or fold for fold in self.made]

    @property
    def live(self) -> bool:
        """Whether any of its folds is in force."""
        return any(fold.fold in self.history.branch.live for fold in self.made)

    @property
    def before(self) -> int:
        return sum(fold.tokens_before for fold in self.made)

    @property
    def after(self) -> int:
        return sum(fold.tokens for fold in self.folds)

    @property
    def kind(self) -> FoldKind | None:
        return self.made[0].kind if self.made else None

    @property
    def name(self) -> str:
        """The fold that stands for the event."""
        return self.made[0].fold if self.made else ""


class Story:
    """`points` are tokens; `seqs` and `times` belong to them. `steps[i]` counts the model's replies up to point i. `changes`: how
    often events came or may look different since; a step alone only adds a point.
    """

    def __init__(self, history: State | None = None) -> None:
        self.history = history or State()
        self.points = array("q")
        self.seqs = array("q")
        self.times = array("d")
        self.steps = array("q")
        self.events: list[Event] = []
        self.changes = 0
        self._event_of: dict[str, Event] = {}
        self._batches: dict[str, Event] = {}

    @property
    def window(self) -> int:
        """The main model's; 0 where it is not known."""
        chosen = self.history.settings.model(ModelRole.MAIN)
        return chosen.window if chosen else 0

    def extend(self, facts: Iterable[Recorded]) -> None:
        for recorded in facts:
            self.advance(recorded)

    def advance(self, recorded: Recorded) -> bool:
        """One more fact; True when a point or an event came with it. A history that was not given is made of these."""
        if recorded.seq > self.history.seq:
            self.history.advance(recorded)
        match recorded.fact:
            case ModelReplied():
                self._point(recorded, self.history.record.ledger.sent(recorded.seq))
                return True
            case Folded() as fold:
                self._fold(recorded, fold)
            case Unfolded() | Refolded() | Rewound():
                self._point(recorded, self._used(recorded.seq))
            case ConversationStarted():
                self.events.append(self._event(recorded, 0))
            case PolicySet(preset=preset):
                if self.events and not self.events[0].words:
                    self.events[0].words = preset
                return False
            case DocumentEdited():
                pass
            case _:
                return False
        self.changes += 1
        return True

    def event_of(self, fold: str) -> Event | None:
        return self._event_of.get(fold)

    def handover_before(self, event: Event) -> Event | None:
        """The handover that an event's document updates."""
        earlier = [each for each in self.events if each.kind is FoldKind.HANDOVER and each.seq < event.seq]
        return earlier[-1] if earlier else None

    # --- below

    def _event(self, recorded: Recorded, point: int) -> Event:
        return Event(self.history, recorded.seq, recorded.time, point, [], recorded.conversation)

    def _used(self, seq: int) -> int:
        """What the view counted after this fact, as the main model bills it."""
        chosen = self.history.record.settings_at(seq).model(ModelRole.MAIN)
        ledger = self.history.record.ledger
        return round(ledger.shown[seq] * ledger.factor(chosen.model if chosen else "", seq))

    def _point(self, recorded: Recorded, tokens: int) -> None:
        self.points.append(tokens)
        self.seqs.append(recorded.seq)
        self.times.append(recorded.time)
        self.steps.append(self.history.record.ledger.steps(recorded.seq))

    def _fold(self, recorded: Recorded, fact: Folded) -> None:
        event = self._batches.get(fact.batch) if fact.batch else None
        if event is None:
            if fact.kind is not FoldKind.EXCERPT and self.points:
                self._before(recorded)
            event = self._event(recorded, len(self.points))
            self.events.append(event)
            if fact.batch:
                self._batches[fact.batch] = event
        event.made.append(fact)
        self._event_of[fact.fold] = event
        if event.point < len(self.points):
            self.points[event.point] = self._used(recorded.seq)
        else:
            self._point(recorded, self._used(recorded.seq))

    def _before(self, recorded: Recorded) -> None:
        """Where the fold began, so that the line falls straight."""
        before = self._used(recorded.seq - 1)
        if self.points[-1] != before:
            self._point(recorded, before)


def merged(stories: Sequence[Story]) -> list[Event]:
    """The events of several conversations, the newest first."""
    return sorted((event for story in stories for event in story.events), key=lambda event: -event.time)
