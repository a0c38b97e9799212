"""What every strategy looks at, and how it says what to fold.

A strategy is a module with a `FoldStrategy` and a line in `all_strategies.py`. `FoldDocumentWriter`
asks models and checks their answers in the same way for all.
"""

from collections.abc import Callable

from helix_desktop.engine import fold_economics, request_building
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.facts import FoldKind, PartRef, Span
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

PANIC_SHARE = (
    0.4  # If a request does not fit, the last steps may keep this share of what can be folded.
)


@dataclass(frozen=True, slots=True)
class FoldSituation:
    """A moment between two steps. `is_pausing`: the cache expires soon. `is_asked`: the
    user folds, also what was undone.
    """

    state: ConversationState
    policy: Policy
    meter: WindowMeter
    now: float
    is_pausing: bool = False
    is_asked: bool = False

    @property
    def branch(self) -> ConversationBranch:
        return self.state.branch


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """A span to fold, and the rule for it, with its figures."""

    kind: FoldKind
    span: Span
    why: str
    panic: bool = False
    wish: str = ""
    is_asked: bool = False  # A person or an agent asked for it.

    @property
    def sentence_of_wish(self) -> str:
        """Return the end of the question: what the user or agent asked to keep."""
        return f"\nThe user asks to keep in particular: {self.wish}" if self.wish else ""


@dataclass(frozen=True, slots=True)
class FoldStrategy:
    """A way of folding with a text that a model writes.

    `due` is pure, fast and asked before every step. `span` is for folds on demand. `question` gets
    the plan, the tokens for the answer and the steps that stay.
    """

    kind: FoldKind
    title: str  # The heading of the text this strategy writes.
    due: Callable[[FoldSituation], FoldPlan | None]
    span: Callable[[FoldSituation], Span | None]
    question: Callable[[FoldPlan, int, int], str]
    name: Callable[[int], str] = lambda _: ""  # Given a document's number, returns its title.
    sections: bool = False  # True if the document has six sections, False if it is a list of lines.
    dated: bool = False  # Whether the writing model is shown when each message was sent.
    # Whether the main model writes the document, with its own context. By default, it never does.
    main_writes: Callable[[FoldSituation, Span], bool] = lambda _, __: False


def first_seq_of_tail(situation: FoldSituation) -> int:
    """Return the first message that stays: the last turn's, or that of a running turn's
    last steps.
    """
    branch, steps = situation.branch, situation.policy.tail_steps
    if not branch.order:
        return 1
    if not branch.turn.running:
        return branch.turn.first_seq or branch.order[0]
    first = branch.steps[-steps] if len(branch.steps) >= steps else branch.order[0]
    return max(first, branch.turn.before)


def first_seq_kept_in_panic(situation: FoldSituation) -> int:
    """Return the first message that stays in panic: a quarter of the window, at least a step."""
    meter = situation.meter
    # Everything that folds can shorten. A large system prompt leaves little of the window for it.
    foldable = max(0, meter.window - meter.reserve - meter.parts[ContextKind.SYSTEM])
    room = min(fold_economics.most_tail_tokens_in_panic(meter.window), PANIC_SHARE * foldable)
    return _limit_tail_to_room(situation, first_seq_of_tail(situation), room)


def _limit_tail_to_room(situation: FoldSituation, first: int, room: float) -> int:
    """Return `first`, or the first of the last steps (at least one) that fit into `room`."""
    branch = situation.branch
    room /= situation.meter.factor
    if not branch.steps or sum(item.tokens for item in branch.items_from_fact(first)) <= room:
        return first
    kept = branch.steps[-1]
    for step in reversed(branch.steps[-situation.policy.tail_steps :]):
        if sum(item.tokens for item in branch.items_from_fact(step)) > room:
            break
        kept = step
    return max(kept, first)


def find_foldable_span(situation: FoldSituation, until: int = 0) -> Span | None:
    """Return the facts that a span may cover. `until`: the first message that stays, by
    default the tail's first.
    """
    branch = situation.branch
    if not branch.order:
        return None
    first = branch.order[0] if until or situation.is_asked else _first_foldable_message(branch)
    cut = find_legal_cut(branch, until or first_seq_of_tail(situation))
    position = branch.message_position(cut)
    last = branch.order[position - 1] if position else 0
    if last < first or not branch.would_fold_nest(Span(first, last)):
        return None
    return Span(first, last)


def find_legal_cut(branch: ConversationBranch, seq: int) -> int:
    """Return the last place at or before `seq` where a span may end."""
    position = branch.message_position(seq)
    while position > 0 and not request_building.is_legal_cut(
        branch, branch.order[position] if position < len(branch.order) else 0
    ):
        position -= 1
    return branch.order[position] if position < len(branch.order) else branch.order[-1]


def _first_foldable_message(branch: ConversationBranch) -> int:
    """Return the first message that no undone span bars. Spans in force do not bar any."""
    first = branch.order[0]
    for cover in branch.barred:
        if isinstance(cover, Span) and not branch.is_inside_live_fold(cover):
            first = max(first, cover.last + 1)
    return first


def was_restored_by_user(situation: FoldSituation, ref: PartRef) -> bool:
    """Whether an undone fold covered this part. What the user restored, only the user
    folds again.
    """
    barred = () if situation.is_asked else situation.branch.barred
    return ref in barred or any(
        isinstance(cover, Span) and cover.first <= ref.seq <= cover.last for cover in barred
    )
