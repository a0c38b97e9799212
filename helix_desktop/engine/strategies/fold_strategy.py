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

# If a request does not fit, the last steps may keep this share of what can be folded.
PANIC_SHARE = 0.4


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
        if not self.wish:
            return ""
        return f"\nThe user asks to keep in particular: {self.wish}"


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
    """Return the first message of the tail: the messages at the end that no fold replaces.

    While the agent works, these are its last steps, and otherwise the whole last turn. (A step is
    a reply with its results, and a turn all steps that answer one message of the user.)
    """
    branch = situation.branch
    if not branch.order:
        return 1
    first_message = branch.order[0]
    if not branch.turn.running:
        return branch.turn.first_seq or first_message
    tail_steps = situation.policy.tail_steps
    if len(branch.steps) < tail_steps:
        return max(first_message, branch.turn.before)
    return max(branch.steps[-tail_steps], branch.turn.before)


def first_seq_kept_in_panic(situation: FoldSituation) -> int:
    """Return the first message that stays if the next request would not fit: the last messages
    that take up no more than a quarter of the window, but at least the last step.
    """
    meter = situation.meter
    # Everything that folds can shorten. A large system prompt leaves little of the window for it.
    foldable = max(0, meter.window - meter.reserve - meter.parts[ContextKind.SYSTEM])
    share_of_window = fold_economics.most_tail_tokens_in_panic(meter.window)
    most_tokens = min(share_of_window, PANIC_SHARE * foldable)
    return _limit_tail(situation, first_seq_of_tail(situation), most_tokens)


def _limit_tail(situation: FoldSituation, first: int, most_billed_tokens: float) -> int:
    """Return `first`, or the first of the last steps (at least one) that have so few tokens."""
    branch = situation.branch
    most_tokens = most_billed_tokens / situation.meter.factor
    if not branch.steps or _count_tokens_from(branch, first) <= most_tokens:
        return first
    first_kept = branch.steps[-1]
    for step in reversed(branch.steps[-situation.policy.tail_steps :]):
        if _count_tokens_from(branch, step) > most_tokens:
            break
        first_kept = step
    return max(first_kept, first)


def _count_tokens_from(branch: ConversationBranch, seq: int) -> int:
    return sum(item.tokens for item in branch.items_from_fact(seq))


def find_foldable_span(situation: FoldSituation, until: int = 0) -> Span | None:
    """Return the messages that a fold may replace, from the first to the last, or None.

    `until`: the first message that stays, by default the first of the tail.
    """
    branch = situation.branch
    if not branch.order:
        return None
    first = branch.order[0]
    if not until and not situation.is_asked:
        first = _first_foldable_message(branch)
    cut = find_legal_cut(branch, until or first_seq_of_tail(situation))
    position = branch.message_position(cut)
    if position == 0:
        return None
    span = Span(first, branch.order[position - 1])
    if span.last < first or not branch.would_fold_nest(span):
        return None
    return span


def find_legal_cut(branch: ConversationBranch, seq: int) -> int:
    """Return the last place at or before `seq` where a span may end."""
    last_position = len(branch.order) - 1
    position = min(branch.message_position(seq), last_position)
    while position > 0 and not request_building.is_legal_cut(branch, branch.order[position]):
        position -= 1
    return branch.order[position]


def _first_foldable_message(branch: ConversationBranch) -> int:
    """Return the first message that may be folded: the one behind all whose fold the user has
    undone, since what the user restored is not folded again.
    """
    first = branch.order[0]
    for cover in branch.barred:
        if isinstance(cover, Span) and not branch.is_inside_live_fold(cover):
            first = max(first, cover.last + 1)
    return first


def was_restored_by_user(situation: FoldSituation, ref: PartRef) -> bool:
    """Whether an undone fold covered this part. What the user restored, only the user
    folds again.
    """
    if situation.is_asked:
        return False
    barred = situation.branch.barred
    if ref in barred:
        return True
    for cover in barred:
        if isinstance(cover, Span) and cover.first <= ref.seq <= cover.last:
            return True
    return False
