"""What holds at a moment: settings, folds, pins, exclusions, the view, its tokens and its cost.

The newest state (`view.ConversationState`) and earlier ones (`PastMoment`) answer the
same questions with the same code. A past moment is not replayed: only the changes on
its path are applied.
"""

from collections.abc import Iterable
from dataclasses import replace

from helix_desktop.engine.facts import (
    Cover,
    Folded,
    ModelReplied,
    ModelRole,
    Recorded,
    ToolCall,
    ToolReturned,
)
from helix_desktop.engine.fold_kinds import KINDS_OF_PARTS
from helix_desktop.engine.messages import Block, View
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.fact_tree import FactTree
from helix_desktop.engine.state.fold_savings import SavedByFolds
from helix_desktop.engine.state.live_folds import LiveFolds
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.state.token_ledger import Savings


class Moment:
    """`seq`: the newest fact then. All else is in `branch`, `settings` and the record's ledger."""

    record: FactTree
    seq: int
    settings: RequestSettings
    branch: LiveFolds

    @property
    def facts(self) -> list[Recorded]:
        """Return everything that had happened, on every branch."""
        return self.record.facts[: self.seq]

    @property
    def time_of_moment(self) -> float:
        if self.seq == 0:
            return 0.0
        return self.record.facts[self.seq - 1].time

    @property
    def counted_tokens(self) -> int:
        """Return the view's tokens in the base encoding, without the model's own factor."""
        return self.branch.total_tokens + self.settings.settings_tokens

    @property
    def live_folds(self) -> tuple[Folded, ...]:
        return self.branch.live_folds

    def find_fold(self, name: str) -> Folded | None:
        """Return the fold, in force or undone, with the user's wording if there is any."""
        return self.branch.folds.get(name)

    def is_output_forgotten(self, fold: Folded) -> bool:
        """Whether the output behind a marker or excerpt was permanently removed."""
        if fold.kind not in KINDS_OF_PARTS or not fold.entries:
            return False
        return all(self._is_entry_forgotten(entry) for entry in fold.entries)

    def _is_entry_forgotten(self, entry: Digest) -> bool:
        forgotten_by = self.record.forgotten.get(entry)
        return forgotten_by is not None and forgotten_by <= self.seq

    def count_recallable_tokens(self) -> int:
        """Return the tokens of originals that markers and excerpts can bring back.

        Of several folds over the same part, the one that replaced the most counts. A text that
        several outputs have in common is stored once, and counts once.
        """
        return sum(max(tokens) for tokens in self._recallable_sizes_by_text().values())

    def has_equal_recallable_outputs(self) -> bool:
        """Whether some of the outputs that can be recalled have the same text."""
        return any(len(tokens) > 1 for tokens in self._recallable_sizes_by_text().values())

    def _recallable_sizes_by_text(self) -> dict[Cover | Digest, list[int]]:
        """Return for each text that can be recalled the tokens of each output that it replaced."""
        tokens_by_cover: dict[Cover, int] = {}
        entry_by_cover: dict[Cover, Digest] = {}
        for name in self.branch.live:
            fold = self.branch.folds[name]
            if fold.kind not in KINDS_OF_PARTS or self.is_output_forgotten(fold):
                continue
            tokens = max(tokens_by_cover.get(fold.cover, 0), fold.tokens_before)
            tokens_by_cover[fold.cover] = tokens
            if fold.entries:
                entry_by_cover[fold.cover] = fold.entries[0]
        sizes_by_text: dict[Cover | Digest, list[int]] = {}
        for cover, tokens in tokens_by_cover.items():
            text = entry_by_cover.get(cover, cover)
            sizes_by_text.setdefault(text, []).append(tokens)
        return sizes_by_text

    def facts_on_path(self) -> list[Recorded]:
        """Return the facts that lead to the view, oldest first."""
        return list(self.record.facts_leading_to(self.seq))

    def billed_per_counted_token(self) -> float:
        """Return how many tokens the main model bills per counted token."""
        model_name = ""
        chosen = self.settings.model_for_role(ModelRole.MAIN)
        if chosen is not None:
            model_name = chosen.model
        return self.record.ledger.billing_factor(model_name, self.seq)

    def savings_until_moment(self) -> Savings:
        """Return what was sent and paid, compared with no folds."""
        chosen = self.settings.model_for_role(ModelRole.MAIN)
        is_priced = chosen is not None and chosen.price_input > 0
        return self.record.ledger.savings_until(self.seq, is_priced=is_priced)

    def saved_by_folds(self, names: Iterable[str]) -> SavedByFolds:
        """Return what these folds have saved together until then, as tokens are counted here."""
        return self.record.ledger.saved_by_folds_until(self.seq, names)

    def get_view(self) -> View:
        blocks = list(self.settings.settings_blocks)
        for item in self.branch.items:
            blocks += item.blocks
        return self._view_of_blocks(tuple(blocks))

    def past_moment(self, seq: int, taken_out: Iterable[Cover] = ()) -> "Moment":
        """Return an earlier moment. `taken_out`: leave this out although it was excluded later."""
        return PastMoment(self.record, seq, taken_out)

    def _view_of_blocks(self, blocks: tuple[Block, ...]) -> View:
        """Return a view of these blocks with the tools and the main model's settings.

        As long as calls wait for results, the blocks from their reply on are not stable: their
        messages may still grow.
        """
        tools = self.settings.tools
        stable = len(blocks) - self._count_blocks_since_open_calls()
        view = View(blocks, tools.tools, tools.tokens, stable, seq=self.seq)
        main_model = self.settings.model_for_role(ModelRole.MAIN)
        if main_model is None:
            return view
        return replace(
            view,
            effort=main_model.effort,
            temperature=main_model.temperature,
            top_p=main_model.top_p,
        )

    def _count_blocks_since_open_calls(self) -> int:
        """Return how many of the last blocks belong to calls without all results."""
        seq_of_reply = self._reply_with_open_calls()
        if seq_of_reply == 0:
            return 0
        block_count = 0
        for item in reversed(self.branch.items):
            if item.first < seq_of_reply:
                break
            block_count += len(item.blocks)
        return block_count

    def _reply_with_open_calls(self) -> int:
        """Return the last reply if it has more calls than results follow it, or 0."""
        result_count = 0
        for seq in reversed(self.branch.order):
            fact = self.branch.message_at(seq).fact
            if isinstance(fact, ModelReplied):
                call_count = sum(isinstance(part, ToolCall) for part in fact.parts)
                if call_count > result_count:
                    return seq
                return 0
            if isinstance(fact, ToolReturned):
                result_count += 1
        return 0


class PastMoment(Moment):
    """A past moment. It costs what it shows and what changed, however long the history is."""

    def __init__(self, record: FactTree, seq: int, taken_out: Iterable[Cover] = ()) -> None:
        self.record = record
        self.seq = max(0, min(seq, len(record.facts)))
        self.settings = record.settings_at(self.seq)
        self.branch = record.folds_at(self.seq, taken_out)
