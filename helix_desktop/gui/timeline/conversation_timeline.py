"""The points and events of a conversation's timeline. The engine interprets the facts
(`engine/state`).

There is a point for every step and for every change of the prefix. A step counts what its request
used; a change counts the view after it, multiplied by the model's factor. A batch of folds is one
event: one change of the prefix, one row of the list. If another program recorded what its requests
took, only these are points: what we count lacks its tools, so it would lie far below.

A row says its share of what the whole conversation saved (`common/savings_sentences.py`), less what
writing its folds took. The rows add up to the head, because each request is divided among the folds
that were in force in it, and never again. An attempt that failed has a row of its own with what it
took, and so has a rewind.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from enum import StrEnum
from itertools import accumulate

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import is_added_by_agent
from helix_desktop.engine.fold_kinds import KINDS_OF_PARTS
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.fold_savings import SavedByFolds
from helix_desktop.engine.state.token_ledger import (
    LEAST_RATE,
    NOT_FOR_FOLDS,
    newest_fact_seen_by,
)
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.tool_result_reading import (
    command_of_call,
    find_changed_paths,
    guess_if_command_changes_files,
    parse_call_arguments,
)
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.fold_descriptions import select_counted_folds

_OWN_TOOLS = frozenset(ToolName)
NO_MODEL = "<synthetic>"  # Claude Code calls its own words so, which it records as a model's reply.
# The layer above those of all kinds: what the model counts more than we do.
COUNTED_DIFFERENTLY = "counted differently"
# In a list of at least this length, adjacent folds of one kind share a row.
LONG_LIST = 30


class TimelineLane(StrEnum):
    """A row of marks below the plot."""

    YOU = "you"
    FILES = "files"
    ERRORS = "errors"


@dataclass(slots=True)
class LaneMarks:
    """The marks of a lane, from left to right: the point of each, and the fact that it is for."""

    points: "array[int]" = field(default_factory=lambda: array("q"))
    seqs: "array[int]" = field(default_factory=lambda: array("q"))

    def append_mark(self, point: int, seq: int) -> None:
        self.points.append(point)
        self.seqs.append(seq)

    def remove_mark_of(self, seq: int) -> bool:
        """Removes the mark of a fact. Returns whether there was one."""
        if seq not in self.seqs:
            return False
        index = self.seqs.index(seq)
        self.points.pop(index)
        self.seqs.pop(index)
        return True


@dataclass(frozen=True, slots=True)
class TimelineRewind:
    """A rewind, and the tokens of the view before and after it. `is_return`: to messages that an
    earlier rewind left behind. `again`: to have a message answered once more.
    """

    is_return: bool
    again: bool
    tokens_before: int
    tokens_after: int


@dataclass(slots=True)
class TimelineEvent:
    """One row of the timeline. An event without folds is what `happened`: an attempt to shorten
    that failed, or a rewind. Otherwise it is the conversation's start.
    """

    history: ConversationState
    seq: int
    time: float
    point: int
    made_folds: list[facts.Folded] = field(default_factory=list)
    happened: facts.FoldFailed | TimelineRewind | None = None
    conversation: str = ""
    words: str = ""
    last_time: float = 0.0
    # What the requests that wrote the folds took.
    writing: facts.Usage = field(default_factory=facts.Usage)
    # What is added to its share as it is shown, so that all rows add up to the head.
    rounding: float = 0.0

    @property
    def saved(self) -> SavedByFolds:
        """What its folds saved, and in which requests. The history has them of all facts."""
        return self.history.saved_by_folds(fold.fold for fold in self.made_folds)

    @property
    def current_folds(self) -> list[facts.Folded]:
        return [self.history.find_fold(fold.fold) or fold for fold in self.made_folds]

    @property
    def counted_folds(self) -> Sequence[facts.Folded]:
        """The folds that the row's number and sizes are of: one that was put back is in neither."""
        return select_counted_folds(self.current_folds, self.history.branch.live)

    @property
    def has_fold_in_force(self) -> bool:
        return any(fold.fold in self.history.branch.live for fold in self.made_folds)

    @property
    def is_left_behind(self) -> bool:
        """Whether the conversation was rewound to before all of its folds, which nothing undoes."""
        if not self.made_folds:
            return False
        return all(self.history.find_fold(fold.fold) is None for fold in self.made_folds)

    @property
    def tokens_before_folds(self) -> int:
        return sum(fold.tokens_before for fold in self.counted_folds)

    @property
    def tokens_after_folds(self) -> int:
        return sum(fold.tokens for fold in self.counted_folds)

    @property
    def fold_kind(self) -> facts.FoldKind | None:
        if not self.made_folds:
            return None
        return self.made_folds[0].kind

    @property
    def first_fold_id(self) -> str:
        if not self.made_folds:
            return ""
        return self.made_folds[0].fold


_SAID = (facts.UserSaid, facts.ModelReplied, facts.ToolReturned)
# What a model is asked for while an excerpt is made. The purposes of other kinds have their names.
_PURPOSES_OF_EXCERPTS = (facts.Purpose.ADMISSION, facts.Purpose.COMPACTION)


class ConversationTimeline:
    """The chart and the list of one conversation, computed from its facts one after another.

    `points` are token counts; `seqs` and `times` have the same indices; `steps[i]` is the number
    of replies up to point i, `dollars[i]` what was paid until then. `layers` are the tokens of the
    first kind, of the first two, and so on, as the panel of the meter says them; what the model
    counts beyond that is in the last layer alone. `marks` has the points and
    the seqs of each lane. `change_count` counts updates to events; a step alone only adds a point.
    """

    def __init__(self, history: ConversationState | None = None) -> None:
        """Sets up a timeline without points and rows. They come with each fact that is read."""
        self.history = history or ConversationState()

        # The points of the chart.
        self.layers = [array("q") for _ in (*ContextKind, COUNTED_DIFFERENTLY)]
        self.points = array("q")
        self.seqs = array("q")
        self.times = array("d")
        self.steps = array("q")
        self.dollars = array("d")
        self.marks = {lane: LaneMarks() for lane in TimelineLane}
        self._unanswered_messages = 0  # So many of the user's marks wait for a step.

        # The rows of the list.
        self.events: list[TimelineEvent] = []
        self.folded_events: list[TimelineEvent] = []
        self.change_count = 0
        self._event_of: dict[str, TimelineEvent] = {}
        self._event_of_batch: dict[str, TimelineEvent] = {}

        # What was paid for folds that are being written, by what the model was asked for.
        self._unfinished_writing: dict[facts.Purpose, facts.Usage] = {}

        # Who works in the conversation.
        self.has_subagents = False  # What they cost is in no point.
        self._is_foreign = False  # True if an agent's own program writes the conversation now.
        # True until we send a request, if another program recorded the conversation.
        self._is_recorded = False
        self._replies_of_no_model = 0
        # By kind: what undone folds changed here. The agent goes on with its compacted
        # conversation.
        self._changed_only_here = [0] * len(ContextKind)
        # What the first request of a recorded conversation had beside what was recorded.
        self._unrecorded_tokens: int | None = None
        self._failed_calls: dict[str, int] = {}  # By call: the number of its failed result.
        # The window of a model that was chosen for the next request, and is not recorded yet.
        self.expected_window = 0

    @property
    def model_window(self) -> int:
        """The context window of the main model of the next request, or 0 if it is unknown."""
        if self.expected_window:
            return self.expected_window
        main_model = self.history.settings.model_for_role(facts.ModelRole.MAIN)
        if main_model is None:
            return 0
        return main_model.window

    @property
    def _has_only_measured_points(self) -> bool:
        return self._is_recorded and bool(self.history.record.ledger.reports)

    def read_all_facts(self, recorded_facts: Iterable[facts.Recorded]) -> None:
        for recorded in recorded_facts:
            self.read_next_fact(recorded)

    def read_next_fact(self, recorded: facts.Recorded) -> bool:
        """Reads one more fact; True if it added a point or an event. Also advances the history."""
        if recorded.seq > self.history.seq:
            self.history.advance_state(recorded)
        self._add_writing_cost_of_fold(recorded)
        self._update_who_works_here(recorded.fact)
        match recorded.fact:
            case facts.ModelReplied() as reply:
                # Excerpts are made of what came before a reply, so there was none of these.
                self._pop_writing_cost(facts.FoldKind.EXCERPT)
                return self._add_point_of_step(recorded, reply)
            case facts.PolicySet(preset=preset):
                self._name_preset_at_start(preset)
                return False
        if self._update_events(recorded):
            self.change_count += 1
            return True
        return self._add_lane_mark(recorded)

    def _update_events(self, recorded: facts.Recorded) -> bool:
        """Adds to the events what a fact did to the view. Returns False if it is about no event."""
        match recorded.fact:
            case facts.ConversationStarted() as started:
                # What the conversation before a fork was writing is not written in the fork.
                self._unfinished_writing.clear()
                self._is_foreign = bool(started.agent or started.origin.kind)
                self._is_recorded = bool(started.origin.kind)
                self.events.append(self._build_timeline_event(recorded, point=0))
            case facts.Folded() as fold:
                self._add_fold_to_event(recorded, fold)
            case facts.FoldFailed() as failure:
                self._add_event_of_failure(recorded, failure)
            case facts.Rewound() as rewind:
                self._add_event_of_rewind(recorded, rewind)
            case facts.Unfolded() | facts.Refolded():
                self._add_point_of_changed_view(recorded)
            case facts.BroughtIn() as imported:
                unstated_cost = self.history.record.ledger.unstated.get(recorded.seq, 0.0)
                self._spread_imported_cost(imported.first, unstated_cost)
            case facts.DocumentEdited():
                pass  # The event reads the new text from the history.
            case _:
                return False
        return True

    def _name_preset_at_start(self, preset: str) -> None:
        if self.events and not self.events[0].words:
            self.events[0].words = preset

    def _update_who_works_here(self, fact: facts.Fact) -> None:
        if isinstance(fact, facts.ToolsOffered):
            self._is_recorded = False
        if isinstance(fact, facts.ToolReturned) and fact.child:
            self.has_subagents = True

    def _add_point_of_step(self, recorded: facts.Recorded, reply: facts.ModelReplied) -> bool:
        if self._has_only_measured_points and not reply.usage.input:
            if reply.model == NO_MODEL:
                self._replies_of_no_model += 1
            return False
        newest_seen = newest_fact_seen_by(recorded)
        tokens = self._request_tokens_as_meter_says(recorded.seq, reply, newest_seen)
        self._add_chart_point(recorded, tokens, newest_seen)
        self._move_waiting_messages_to_step()
        return True

    def _request_tokens_as_meter_says(
        self, seq: int, reply: facts.ModelReplied, newest_seen: int
    ) -> int:
        """Returns what a request took as it was reported. Of our own requests, the meter does not
        believe a report of less than half of what we count, so the chart does not either. Without
        a report, both have the same estimate.
        """
        ledger = self.history.record.ledger
        reported_tokens = ledger.request_tokens(seq)
        counted_tokens = ledger.shown[newest_seen]
        is_ours = not self._is_recorded and not self._is_foreign
        is_believed = bool(reply.usage.input) and reported_tokens >= LEAST_RATE * counted_tokens
        if is_ours and not is_believed:
            return ledger.billed_view_tokens(reply.model, seq, counted_tokens)
        return reported_tokens

    def _move_waiting_messages_to_step(self) -> None:
        """A message stands at the step that answers it. Until there is one, it stands at the last
        step, because nothing is drawn behind that.
        """
        points = self.marks[TimelineLane.YOU].points
        for index in range(len(points) - self._unanswered_messages, len(points)):
            points[index] = len(self.points) - 1
        self._unanswered_messages = 0

    def _add_point_of_changed_view(self, recorded: facts.Recorded) -> None:
        if not self._has_only_measured_points:
            self._add_chart_point(recorded, self._billed_view_tokens(recorded.seq), recorded.seq)
        elif not isinstance(recorded.fact, facts.Rewound):
            ledger = self.history.record.ledger
            tokens_before = ledger.view_tokens_by_kind(recorded.seq - 1)
            tokens_after = ledger.view_tokens_by_kind(recorded.seq)
            for kind, tokens_of_kind in enumerate(tokens_after):
                self._changed_only_here[kind] += tokens_of_kind - tokens_before[kind]

    def _add_lane_mark(self, recorded: facts.Recorded) -> bool:
        """Marks a fact in one of the lanes of the chart, if it belongs in one: the user's messages,
        errors, or changed files. Returns whether a mark was added or removed.

        A call that the user refused is recorded as failed first, and its decision afterwards takes
        the error mark away. A user's mark moves to the point of the next step, once there is one.
        """
        fact = recorded.fact
        if isinstance(fact, facts.Decided) and not fact.allowed and fact.by == "user":
            return self._remove_error_mark(fact.call)
        lane = self._find_lane(recorded)
        if lane is None:
            return False
        if lane is TimelineLane.YOU:
            self._unanswered_messages += 1
        if lane is TimelineLane.ERRORS and isinstance(fact, facts.ToolReturned):
            self._failed_calls[fact.call] = recorded.seq
        newest_point = len(self.points) - 1
        # What precedes the first point is marked there.
        self.marks[lane].append_mark(max(0, newest_point), recorded.seq)
        return True

    def _find_lane(self, recorded: facts.Recorded) -> TimelineLane | None:
        """Returns the lane in which a fact is marked, or None."""
        match recorded.fact:
            # Connected agents send texts of their own as messages of the user's.
            case facts.UserSaid(parts=parts) if not (self._is_foreign and is_added_by_agent(parts)):
                return TimelineLane.YOU
            case (
                facts.ToolReturned(ok=False, stopped=False)
                | facts.TurnEnded(reason=facts.TurnEnd.FAILED)
            ):
                return TimelineLane.ERRORS
            case facts.FilesChanged() | facts.ToolReturned(changes=(_, *_)):
                return TimelineLane.FILES
            case facts.ToolReturned() if self._did_other_agent_write_files(recorded.seq):
                return TimelineLane.FILES
        return None

    def _remove_error_mark(self, call: str) -> bool:
        """Removes the error mark of a call that the user refused. The decision is
        recorded after the result.
        """
        seq_of_result = self._failed_calls.pop(call, 0)
        return self.marks[TimelineLane.ERRORS].remove_mark_of(seq_of_result)

    def _did_other_agent_write_files(self, seq: int) -> bool:
        """Decides by the call's arguments, because only our own tools record their changes."""
        answered = self.history.branch.answered.get(seq)
        if answered is None or answered.call.name in _OWN_TOOLS:
            return False
        tool = answered.call.name
        arguments = parse_call_arguments(answered.call.arguments)
        command = command_of_call(tool, arguments, answered.call.arguments)
        if command:
            return guess_if_command_changes_files(command)
        return any(find_changed_paths(tool, arguments, command))

    def _spread_imported_cost(self, first_seq: int, dollars: float) -> None:
        """Distributes a cost that no imported step states over the steps since `first_seq`, by how
        many tokens each sent.
        """
        imported_points: list[int] = []
        total_tokens = 0
        for point, seq in enumerate(self.seqs):
            if seq >= first_seq:
                imported_points.append(point)
                total_tokens += self.points[point]
        tokens_until_point = 0
        for point in imported_points:
            tokens_until_point += self.points[point]
            # `dollars` has sums, so each point gets the share of all tokens until it.
            share = tokens_until_point / max(1, total_tokens)
            self.dollars[point] += dollars * share

    def costs_at_point(self, point: int) -> tuple[float, float]:
        """Returns the dollars paid here until a point, and those paid before an import
        or a fork.
        """
        figures = self.history.record.ledger.savings_until(self.seqs[point])
        return figures.paid, max(figures.paid_before, self.dollars[point] - figures.paid)

    def costs_until_now(self) -> tuple[float, float]:
        """Returns the same for the whole conversation. An import is recorded behind its last
        step, so at the last point nobody knows yet who paid for it.
        """
        figures = self.history.savings_until_moment()
        return figures.paid, figures.paid_before

    def _add_writing_cost_of_fold(self, recorded: facts.Recorded) -> None:
        """Keeps the cost of writing a fold until it is made or has failed."""
        spent = recorded.fact
        if not isinstance(spent, facts.Spent) or spent.purpose in NOT_FOR_FOLDS:
            return
        cost_before = self._unfinished_writing.get(spent.purpose, facts.Usage())
        self._unfinished_writing[spent.purpose] = _add_usages(cost_before, spent.usage)

    def _pop_writing_cost(self, kind: facts.FoldKind) -> facts.Usage:
        """Returns what was paid to write a fold of a kind, which its row says from now on."""
        purposes: tuple[facts.Purpose, ...] = (facts.Purpose(kind.value),)
        if kind is facts.FoldKind.EXCERPT:
            purposes = _PURPOSES_OF_EXCERPTS
        cost = facts.Usage()
        for purpose in purposes:
            cost = _add_usages(cost, self._unfinished_writing.pop(purpose, facts.Usage()))
        return cost

    def _add_event_of_failure(self, recorded: facts.Recorded, failure: facts.FoldFailed) -> None:
        """Adds the row of an attempt that failed, and its mark. What it took belongs to no later
        attempt: the row of the next summary said the cost of both.
        """
        event = self._build_timeline_event(recorded, point=max(0, len(self.points) - 1))
        event.happened = failure
        event.writing = self._pop_writing_cost(failure.kind)
        self.events.append(event)
        self.marks[TimelineLane.ERRORS].append_mark(event.point, recorded.seq)

    def _add_event_of_rewind(self, recorded: facts.Recorded, rewind: facts.Rewound) -> None:
        """Adds the point of a rewind, its row and its mark. In a conversation that another program
        writes, what was read twice is rewound: that is no act of the user.
        """
        self._add_point_of_changed_view(recorded)
        if self._is_foreign or self._has_only_measured_points:
            return
        runs_before = self.history.record.runs_leading_to(recorded.seq - 1)
        is_return = not any(first <= rewind.to <= last for first, last in runs_before)
        if not is_return and not self._leaves_messages(recorded.seq, rewind.to):
            return
        event = self._build_timeline_event(recorded, point=len(self.points) - 1)
        event.happened = TimelineRewind(
            is_return=is_return,
            again=rewind.again,
            tokens_before=self._billed_view_tokens(recorded.seq - 1),
            tokens_after=self._billed_view_tokens(recorded.seq),
        )
        self.events.append(event)
        self.marks[TimelineLane.YOU].append_mark(event.point, recorded.seq)

    def _leaves_messages(self, seq: int, target: int) -> bool:
        """Whether a rewind at `seq` leaves more than the note that a turn was stopped. A turn that
        goes on with the calls for which it was stopped takes back only that.
        """
        left_facts = self.history.facts[target : seq - 1]
        return any(isinstance(recorded.fact, _SAID) for recorded in left_facts)

    def find_event_of_fold(self, fold: str) -> TimelineEvent | None:
        return self._event_of.get(fold)

    def find_handover_before(self, event: TimelineEvent) -> TimelineEvent | None:
        for earlier in reversed(self.events):
            if earlier.fold_kind is facts.FoldKind.HANDOVER and earlier.seq < event.seq:
                return earlier
        return None

    def _build_timeline_event(self, recorded: facts.Recorded, point: int) -> TimelineEvent:
        return TimelineEvent(
            history=self.history,
            seq=recorded.seq,
            time=recorded.time,
            point=point,
            conversation=recorded.conversation,
        )

    def _billed_view_tokens(self, seq: int) -> int:
        """Returns the view's tokens after this fact, corrected to the main model's bill."""
        main_model = self.history.record.settings_at(seq).model_for_role(facts.ModelRole.MAIN)
        model_name = ""
        if main_model is not None:
            model_name = main_model.model
        ledger = self.history.record.ledger
        return ledger.billed_view_tokens(model_name, seq, ledger.shown[seq])

    def _add_chart_point(self, recorded: facts.Recorded, tokens: int, newest_seq: int) -> None:
        """Adds a point. `newest_seq`: the newest fact of the view that has this many tokens."""
        heights = self._layer_heights(recorded, tokens, newest_seq)
        for layer, height in zip(self.layers, heights, strict=True):
            layer.append(height)
        self.points.append(tokens)
        ledger = self.history.record.ledger
        self.seqs.append(recorded.seq)
        self.times.append(recorded.time)
        self.steps.append(ledger.count_steps(recorded.seq) - self._replies_of_no_model)
        self.dollars.append(
            ledger.dollars_until(recorded.seq) + ledger.unstated_dollars_until(recorded.seq)
        )

    def _layer_heights(self, recorded: facts.Recorded, tokens: int, newest_seq: int) -> list[int]:
        """Returns cumulative tokens by kind. The last value is the whole view, as the meter says it.

        If the model counts fewer than we do, system prompt and tools keep the height that the panel
        of the meter says, and the other kinds share what is left.
        """
        tokens_by_kind = list(self.history.record.ledger.view_tokens_by_kind(newest_seq))
        reply = recorded.fact
        if self._is_recorded and isinstance(reply, facts.ModelReplied) and reply.usage.input > 0:
            tokens_by_kind = self._tokens_of_recorded_request(tokens_by_kind, reply.model, tokens)
            system_tokens = round(tokens_by_kind[0] * self._usual_factor(reply.model))
            return _stack_kinds_up_to_total(tokens_by_kind, tokens, system_tokens)
        if sum(tokens_by_kind) > tokens:
            return _stack_kinds_up_to_total(tokens_by_kind, tokens, tokens_by_kind[0])
        return [*accumulate(tokens_by_kind), tokens]

    def _usual_factor(self, model: str) -> float:
        """Returns the factor that is usual for a model: no report is older than the first fact."""
        return self.history.record.ledger.billing_factor(model, 0)

    def _tokens_of_recorded_request(
        self, counted_by_kind: Sequence[int], model: str, tokens: int
    ) -> list[int]:
        """Returns the tokens by kind of a request that another program sent."""
        tokens_by_kind: list[int] = []
        for counted, changed_here in zip(counted_by_kind, self._changed_only_here, strict=True):
            tokens_by_kind.append(max(0, counted - changed_here))
        # What is left are the request's tools and prompt, which nobody recorded. The agent sends
        # them every time. If less is left later, we counted too much of the rest.
        billed_as_counted = round(tokens / self._usual_factor(model))
        unrecorded_tokens = max(0, billed_as_counted - sum(tokens_by_kind))
        if self._unrecorded_tokens is None:
            self._unrecorded_tokens = unrecorded_tokens
        tokens_by_kind[0] += max(unrecorded_tokens, self._unrecorded_tokens)
        return tokens_by_kind

    def _add_fold_to_event(self, recorded: facts.Recorded, fold: facts.Folded) -> None:
        """Adds a shortening (a fold) to the row of those made together with it, or
        begins a row. All folds of a row share one point of the chart, whose height
        falls with each of them.
        """
        event = None
        if fold.batch:
            event = self._event_of_batch.get(fold.batch)
        if event is None:
            event = self._add_event_of_fold(recorded, fold)
        event.made_folds.append(fold)
        self._event_of[fold.fold] = event
        if self._has_only_measured_points:
            return
        tokens = self._billed_view_tokens(recorded.seq)
        if event.point == len(self.points):
            self._add_chart_point(recorded, tokens, recorded.seq)
            return
        # Another fold of this batch made the point already.
        heights = self._layer_heights(recorded, tokens, recorded.seq)
        for layer, height in zip(self.layers, heights, strict=True):
            layer[event.point] = height
        self.points[event.point] = tokens

    def _add_event_of_fold(self, recorded: facts.Recorded, fold: facts.Folded) -> TimelineEvent:
        """Adds the row of the list for a fold, which is the first or only one of its batch."""
        is_measured = self._has_only_measured_points
        if self.points and not is_measured and fold.kind is not facts.FoldKind.EXCERPT:
            # A point where the fold began makes the line fall vertically.
            tokens_before = self._billed_view_tokens(recorded.seq - 1)
            if self.points[-1] != tokens_before:
                self._add_chart_point(recorded, tokens_before, recorded.seq - 1)
        point = len(self.points)
        if is_measured:
            # The fold has no point of its own: it belongs to the last one.
            point = max(0, point - 1)
        event = self._build_timeline_event(recorded, point)
        self.events.append(event)
        self.folded_events.append(event)
        event.writing = self._pop_writing_cost(fold.kind)
        if fold.batch:
            self._event_of_batch[fold.batch] = event
        return event


def find_last_seq_of_event(event: TimelineEvent, recorded_facts: Sequence[facts.Recorded]) -> int:
    """Returns the number of the fact that made the last of the event's folds.

    A row of the list may stand for many folds, with steps and other facts between them.
    """
    missing_folds = {fold.fold for fold in event.made_folds}
    last_seq = event.seq
    index = event.seq - 1  # The first fact has the number 1.
    while missing_folds and index < len(recorded_facts):
        recorded = recorded_facts[index]
        index += 1
        fact = recorded.fact
        if isinstance(fact, facts.Folded) and fact.fold in missing_folds:
            missing_folds.discard(fact.fold)
            last_seq = recorded.seq
    return last_seq


def _add_usages(first: facts.Usage, second: facts.Usage) -> facts.Usage:
    return facts.Usage(first.input + second.input, cost=first.cost + second.cost)


def group_timeline_events(events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """Merges adjacent events of one kind if there are many. The order stays the same."""
    if len(events) < LONG_LIST:
        return list(events)
    grouped: list[TimelineEvent] = []
    for event in events:
        can_be_grouped = event.fold_kind in KINDS_OF_PARTS
        if can_be_grouped and grouped and grouped[-1].fold_kind is event.fold_kind:
            grouped[-1] = _merge_two_events(grouped[-1], event)
        else:
            grouped.append(event)
    return grouped


def _merge_two_events(earlier: TimelineEvent, later: TimelineEvent) -> TimelineEvent:
    return replace(
        earlier,
        made_folds=earlier.made_folds + later.made_folds,
        last_time=later.time,
        writing=_add_usages(earlier.writing, later.writing),
    )


def merge_timeline_events(stories: Sequence[ConversationTimeline]) -> list[TimelineEvent]:
    """Merges the events of several conversations, the newest first."""
    events: list[TimelineEvent] = []
    for story in stories:
        events += story.events
    events.sort(key=_time_of_event, reverse=True)
    return events


def _time_of_event(event: TimelineEvent) -> float:
    return event.time


def _stack_kinds_up_to_total(
    tokens_by_kind: Sequence[int], tokens: int, system_tokens: int
) -> list[int]:
    """Returns cumulative tokens by kind: those of system and tools, and the others in proportion
    to what was counted, so that all kinds together have `tokens`.
    """
    other_kinds = tokens_by_kind[1:]
    counted_others = sum(other_kinds)
    if counted_others <= 0:
        system_tokens = tokens
        counted_others = 1
    system_height = max(0, min(system_tokens, tokens))
    heights = [system_height]
    for counted_height in list(accumulate(other_kinds))[:-1]:
        # Scaled to what was billed, and never above the whole view, which is drawn last.
        billed_height = counted_height * (tokens - system_height) // counted_others
        heights.append(max(system_height, min(system_height + billed_height, tokens)))
    return [*heights, tokens, tokens]
