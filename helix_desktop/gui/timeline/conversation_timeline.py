"""The points and events of a conversation's timeline. What the facts mean is the engine's to say
(`engine/history`).

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
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass


@dataclass(slots=True)
class TimelineEvent:
    """One row of the timeline. `point` is its index in the chart. Without folds it is the start of the conversation."""

    history: ConversationState
    seq: int
    time: float
    point: int
    made_folds: list[Folded] = field(default_factory=list)
    conversation: str = ""
    words: str = ""

    @property
    def current_folds(self) -> list[Folded]:
        """The folds with the user's edits."""
        return [self.history.find_fold(fold.fold) or fold for fold in self.made_folds]

    @property
    def has_fold_in_force(self) -> bool:
        """Whether any of its folds is in force."""
        return any(fold.fold in self.history.branch.live for fold in self.made_folds)

    @property
    def tokens_before_folds(self) -> int:
        return sum(fold.tokens_before for fold in self.made_folds)

    @property
    def tokens_after_folds(self) -> int:
        return sum(fold.tokens for fold in self.current_folds)

    @property
    def fold_kind(self) -> FoldKind | None:
        return self.made_folds[0].kind if self.made_folds else None

    @property
    def first_fold_id(self) -> str:
        """The id of the event's first fold."""
        return self.made_folds[0].fold if self.made_folds else ""


class ConversationTimeline:
    """`points` are token counts; `seqs` and `times` have the same indices; `steps[i]` is the number of replies up to
    point i. `change_count` counts updates to events; a step alone only adds a point.
    """

    def __init__(self, history: ConversationState | None = None) -> None:
        self.history = history or ConversationState()
        self.points = array("q")
        self.seqs = array("q")
        self.times = array("d")
        self.steps = array("q")
        self.events: list[TimelineEvent] = []
        self.change_count = 0
        self._event_of: dict[str, TimelineEvent] = {}
        self._event_of_batch: dict[str, TimelineEvent] = {}

    @property
    def model_window(self) -> int:
        """The main model's; 0 where it is not known."""
        chosen = self.history.settings.model_for_role(ModelRole.MAIN)
        return chosen.window if chosen else 0

    def read_all_facts(self, facts: Iterable[Recorded]) -> None:
        for recorded in facts:
            self.read_next_fact(recorded)

    def read_next_fact(self, recorded: Recorded) -> bool:
        """Reads one more fact; returns True if it added a point or an event. Also advances the
        history if the fact is new to it.
        """
        if recorded.seq > self.history.seq:
            self.history.advance_state(recorded)
        match recorded.fact:
            case ModelReplied():
                self._add_chart_point(recorded, self.history.record.ledger.request_tokens(recorded.seq))
                return True
            case Folded() as fold:
                self._add_fold_to_event(recorded, fold)
            case Unfolded() | Refolded() | Rewound():
                self._add_chart_point(recorded, self._billed_view_tokens(recorded.seq))
            case ConversationStarted():
                self.events.append(self._build_timeline_event(recorded, 0))
            case PolicySet(preset=preset):
                if self.events and not self.events[0].words:
                    self.events[0].words = preset
                return False
            case DocumentEdited():
                pass
            case _:
                return False
        self.change_count += 1
        return True

    def find_event_of_fold(self, fold: str) -> TimelineEvent | None:
        return self._event_of.get(fold)

    def find_handover_before(self, event: TimelineEvent) -> TimelineEvent | None:
        """The handover that an event's document updates."""
        earlier = [each for each in self.events if each.fold_kind is FoldKind.HANDOVER and each.seq < event.seq]
        return earlier[-1] if earlier else None

    def _build_timeline_event(self, recorded: Recorded, point: int) -> TimelineEvent:
        return TimelineEvent(self.history, recorded.seq, recorded.time, point, [], recorded.conversation)

    def _billed_view_tokens(self, seq: int) -> int:
        """Returns the view's tokens after this fact, corrected to the main model's bill."""
        chosen = self.history.record.settings_at(seq).model_for_role(ModelRole.MAIN)
        ledger = self.history.record.ledger
        return round(ledger.shown[seq] * ledger.billing_factor(chosen.model if chosen else "", seq))

    def _add_chart_point(self, recorded: Recorded, tokens: int) -> None:
        self.points.append(tokens)
        self.seqs.append(recorded.seq)
        self.times.append(recorded.time)
        self.steps.append(self.history.record.ledger.count_steps(recorded.seq))

    def _add_fold_to_event(self, recorded: Recorded, fact: Folded) -> None:
        event = self._event_of_batch.get(fact.batch) if fact.batch else None
        if event is None:
            if fact.kind is not FoldKind.EXCERPT and self.points:
                self._add_point_before_fold(recorded)
            event = self._build_timeline_event(recorded, len(self.points))
            self.events.append(event)
            if fact.batch:
                self._event_of_batch[fact.batch] = event
        event.made_folds.append(fact)
        self._event_of[fact.fold] = event
        if event.point < len(self.points):
            self.points[event.point] = self._billed_view_tokens(recorded.seq)
        else:
            self._add_chart_point(recorded, self._billed_view_tokens(recorded.seq))

    def _add_point_before_fold(self, recorded: Recorded) -> None:
        """Adds a point where the fold began, so that the line falls vertically."""
        before = self._billed_view_tokens(recorded.seq - 1)
        if self.points[-1] != before:
            self._add_chart_point(recorded, before)


def merge_timeline_events(stories: Sequence[ConversationTimeline]) -> list[TimelineEvent]:
    """The events of several conversations, the newest first."""
    return sorted((event for story in stories for event in story.events), key=lambda event: -event.time)
