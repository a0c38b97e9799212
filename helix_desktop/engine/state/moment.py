"""What holds at a moment of a conversation: settings, folds, pins and exclusions, the view, what it counts and has cost.

The newest state (`view.ConversationState`) and every earlier one (`PastMoment`) answer the same questions with the same code. A past moment
is not replayed: which facts changed anything was written down when they came, so only those of its path are applied.
"""

from collections.abc import Iterable

from helix_desktop.engine.facts import Cover, Folded, ModelReplied, ModelRole, Recorded, ToolCall, ToolReturned
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.messages import Block, View
from helix_desktop.engine.state.fact_tree import FactTree
from helix_desktop.engine.state.live_folds import RECALLED, LiveFolds
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.state.token_ledger import Savings


class Moment:
    """`seq`: the newest fact then. Whatever a question needs is in `branch`, `settings` and the record's ledger."""

    record: FactTree
    seq: int
    settings: RequestSettings
    branch: LiveFolds

    @property
    def facts(self) -> list[Recorded]:
        """Everything that had happened, on every branch."""
        return self.record.facts[: self.seq]

    @property
    def time_of_moment(self) -> float:
        return self.record.facts[self.seq - 1].time if self.seq else 0.0

    @property
    def counted_tokens(self) -> int:
        """What the view counts in the base encoding; `billed_per_counted_token` corrects it."""
        return self.branch.total_tokens + self.settings.settings_tokens

    @property
    def live_folds(self) -> tuple[Folded, ...]:
        """The folds in force, oldest first; what a longer one covers is among them."""
        return self.branch.live_folds

    def find_fold(self, name: str) -> Folded | None:
        """The fold, live or undone, with the user's wording where there is one; None where the branch has none."""
        return self.branch.folds.get(name)

    def is_output_forgotten(self, fold: Folded) -> bool:
        """Whether the output that a marker or an excerpt stands for was permanently removed; nothing brings it back."""
        gone = (self.record.forgotten.get(entry, self.seq + 1) <= self.seq for entry in fold.entries)
        return fold.kind in RECALLED and bool(fold.entries) and all(gone)

    def count_recallable_tokens(self) -> int:
        """The tokens of the originals shown as markers and excerpts, without those that were permanently removed."""
        originals: dict[Cover, int] = {}
        for fold in map(self.branch.folds.__getitem__, self.branch.live):
            if fold.kind in RECALLED and not self.is_output_forgotten(fold):
                originals[fold.cover] = max(originals.get(fold.cover, 0), fold.tokens_before)
        return sum(originals.values())

    def facts_on_path(self) -> list[Recorded]:
        """The facts the view goes on from, oldest first: all but those a rewind left behind."""
        return list(self.record.facts_leading_to(self.seq))

    def billed_per_counted_token(self) -> float:
        """Billed tokens per counted token of the main model."""
        chosen = self.settings.model_for_role(ModelRole.MAIN)
        return self.record.ledger.billing_factor(chosen.model if chosen else "", self.seq)

    def savings_until_moment(self, prices: RelativePrices) -> Savings:
        """What was sent and paid until then, beside what it would have been without any fold."""
        chosen = self.settings.model_for_role(ModelRole.MAIN)
        return self.record.ledger.savings_until(self.seq, prices, per_million=chosen.price_input if chosen else 0.0)

    def get_view(self) -> View:
        blocks = [*self.settings.settings_blocks, *(block for item in self.branch.items for block in item.blocks)]
        return self._view_of_blocks(tuple(blocks))

    def past_moment(self, seq: int, taken_out: Iterable[Cover] = ()) -> "Moment":
        """`taken_out`: what is left out of it, although it was taken out only later."""
        return PastMoment(self.record, seq, taken_out)

    def _view_of_blocks(self, blocks: tuple[Block, ...]) -> View:
        tools, main = self.settings.tools, self.settings.model_for_role(ModelRole.MAIN)
        stable = len(blocks) - self._count_blocks_since_open_calls()
        if main is None:
            return View(blocks, tools.tools, tools.tokens, stable, seq=self.seq)
        return View(blocks, tools.tools, tools.tokens, stable, main.effort, self.seq, main.temperature, main.top_p)

    def _count_blocks_since_open_calls(self) -> int:
        """How many blocks at the end belong to a batch that is not whole yet."""
        begun = self._reply_with_open_calls()
        count = 0
        for item in reversed(self.branch.items if begun else ()):
            if item.first < begun:
                break
            count += len(item.blocks)
        return count

    def _reply_with_open_calls(self) -> int:
        """The reply whose calls have not all come back; 0 where there is none."""
        returned = 0
        for seq in reversed(self.branch.order):
            fact = self.branch.message_at(seq).fact
            if isinstance(fact, ModelReplied):
                calls = sum(isinstance(part, ToolCall) for part in fact.parts)
                return seq if calls > returned else 0
            returned += isinstance(fact, ToolReturned)
        return 0


class PastMoment(Moment):
    """A moment that is over. Costs what is shown then and the changes on its path, not the length of the history."""

    def __init__(self, record: FactTree, seq: int, taken_out: Iterable[Cover] = ()) -> None:
        self.record = record
        self.seq = max(0, min(seq, len(record.facts)))
        self.settings = record.settings_at(self.seq)
        self.branch = record.folds_at(self.seq, taken_out)
