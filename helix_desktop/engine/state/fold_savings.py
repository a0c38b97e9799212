"""What each fold has saved: the tokens that it kept out of requests in which its text would still
have stood without it.

The sum over all folds, with what `Savings` says beside it, is what the conversation saved, to the
token. So the rows of the timeline add up to its head. After a fact, all folds together keep out as
many tokens as the view has fewer than without folds. A new fold keeps out what the view became
shorter by. If a fold is undone whose text another fold hides, too, what it kept out is the other's.

Without folds, a summary would have been written where the window was full. From then on, a fold of
what that summary stands for saves nothing: the text would be gone in either case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import Enum, auto

from helix_desktop.engine import facts
from helix_desktop.engine.state.fold_covers import covers_overlap, first_and_last
from helix_desktop.engine.state.live_folds import LiveFolds
from helix_desktop.fast_dataclass import dataclass

OPEN = 2**62  # The end of a run of requests that goes on.
_CHANGES = (
    facts.Folded, facts.Unfolded, facts.Refolded, facts.DocumentEdited,
    facts.Pinned, facts.Unpinned, facts.Excluded, facts.Included,
)  # fmt: skip


class Replaced(Enum):
    """What a summary in the conversation without folds stands for from a request on."""

    NOTHING = auto()  # It has what it had before.
    NOTHING_ANY_MORE = auto()  # The conversation was rewound to before the summary.
    OLD_MESSAGES = auto()  # It is written now: for all that was in the request before.
    AS_HERE = auto()  # No summary would have made room, so everything is as short as it is here.


@dataclass(slots=True)
class FoldRun:
    """Requests in a row in which a fold was in force, from row `first` to before `end`, and the
    tokens that it kept out of each. `counts`: its text would have stood there without it.
    """

    first: int
    tokens: int
    counts: bool
    end: int = OPEN


@dataclass(frozen=True, slots=True)
class SavedByFolds:
    """What folds that share a row have saved together, in tokens as we count them.

    `requests`: those paid for here in which at least one of them was in force. `counted`: of
    these, those in which a text of theirs would have stood without them. `requests_in_all`: also
    those before an import or a fork, which save nothing here.
    """

    tokens: int = 0
    counted: int = 0
    requests: int = 0
    requests_in_all: int = 0


@dataclass(slots=True)
class FoldSavings:
    """Follows which fold keeps how much out of the view, and of the requests.

    What is here changes with facts, what is in `runs` with requests: a request may have been sent
    before the newest facts.
    """

    runs: dict[str, list[FoldRun]] = field(default_factory=dict)
    # How many tokens each live fold keeps out of the view of the newest fact, and all together.
    _kept_out: dict[str, int] = field(default_factory=dict)
    _missing: int = 0
    # By fold: what it kept out from which fact on. It is 0 while the fold is not in force.
    _changes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _last_covered: dict[str, int] = field(default_factory=dict)
    # Changes that no request has seen yet: fact, fold, and what it keeps out, or None without it.
    _unseen: deque[tuple[int, str, int | None]] = field(default_factory=deque)
    # What each fold kept out of the last request.
    _standing: dict[str, int] = field(default_factory=dict)
    # The sum of those of `_standing` whose text would still have stood without them.
    _counted_tokens: int = 0
    # Those of `_standing` whose text would still have stood. Only they are gone through when a
    # summary replaces texts: each stops counting once, however many folds there are.
    _counting: dict[str, None] = field(default_factory=dict)
    # The folds whose texts are gone without folds, too, and the fact up to which all are.
    _gone: set[str] = field(default_factory=set)
    _gone_until: int = 0
    _newest_seen: int = 0  # The newest fact that the last request had.

    # --- What folds keep out of the view

    def follow_kept_out_tokens(
        self, recorded: facts.Recorded, missing: int, folds: LiveFolds
    ) -> None:
        """Follow the view by one fact. `missing`: how many tokens it has fewer than without folds.
        `folds`: those that are in force now.
        """
        if not isinstance(recorded.fact, _CHANGES):
            return  # What is only said is as long without folds.
        change = missing - self._missing
        self._missing = missing
        match recorded.fact:
            case facts.Folded(fold=name) | facts.Refolded(fold=name):
                if name in folds.live:
                    self._note_fold_in_force(recorded.seq, folds.folds[name], change, folds)
            case facts.Unfolded(fold=name):
                if name in self._kept_out and name not in folds.live:
                    hidden_by_others = self._note_fold_not_in_force(recorded.seq, name) + change
                    self._give_to_others(
                        recorded.seq, hidden_by_others, folds.folds[name].cover, folds
                    )
            case facts.DocumentEdited(fold=name):
                if name in self._kept_out:
                    self._set_kept_out(recorded.seq, name, self._kept_out[name] + change)
            case facts.Pinned() | facts.Unpinned() | facts.Excluded() | facts.Included() as mark:
                self._give_to_others(recorded.seq, change, mark.ref, folds)

    def _note_fold_in_force(
        self, seq: int, fold: facts.Folded, change: int, folds: LiveFolds
    ) -> None:
        self._last_covered[fold.fold] = first_and_last(fold.cover)[1]
        if fold.is_by_agent:
            # The agent shortens without us, too. It may hide what our folds have kept out.
            self._set_kept_out(seq, fold.fold, 0)
            self._give_to_others(seq, change, fold.cover, folds)
        else:
            self._set_kept_out(seq, fold.fold, self._kept_out.get(fold.fold, 0) + change)

    def _set_kept_out(self, seq: int, name: str, tokens: int) -> None:
        if self._kept_out.get(name) != tokens:
            self._kept_out[name] = tokens
            self._changes.setdefault(name, []).append((seq, tokens))
            self._unseen.append((seq, name, tokens))

    def _note_fold_not_in_force(self, seq: int, name: str) -> int:
        """Forget a fold that is no longer in force. Return what it kept out."""
        tokens = self._kept_out.pop(name)
        self._changes[name].append((seq, 0))
        self._unseen.append((seq, name, None))
        return tokens

    def _give_to_others(self, seq: int, change: int, cover: facts.Cover, folds: LiveFolds) -> None:
        """Let the folds over a cover keep out so many tokens more or fewer together, the newest
        first. None keeps out less than nothing.
        """
        if not change:
            return
        names = sorted(self._kept_out, key=folds.ages.__getitem__, reverse=True)
        for name in names:
            if not change or not covers_overlap(folds.folds[name].cover, cover):
                continue
            tokens = max(0, self._kept_out[name] + change)
            change -= tokens - self._kept_out[name]
            self._set_kept_out(seq, name, tokens)

    def follow_kept_out_to_branch(
        self, seq: int, missing: int, folds: LiveFolds, path: Sequence[tuple[int, int]]
    ) -> None:
        """Follow the view back. `path`: the facts that lead to it now, as the first and the last of
        each run. Each fold keeps out what it did there.
        """
        self._missing = missing
        for name in [name for name in self._kept_out if name not in folds.live]:
            self._note_fold_not_in_force(seq, name)
        for name in folds.live:
            self._set_kept_out(seq, name, self._kept_out_on_path(name, path))

    def _kept_out_on_path(self, name: str, path: Sequence[tuple[int, int]]) -> int:
        for seq, tokens in reversed(self._changes.get(name, ())):
            if any(first <= seq <= last for first, last in path):
                return tokens
        return 0

    # --- What they kept out of requests

    def count_request_of_step(self, row: int, seen: int, replaced: Replaced) -> int:
        """Add a step in a row of the ledger, whose request had the facts up to `seen`. Return how
        many tokens its folds kept out of it that would have stood there without them.
        """
        self._apply_unseen_changes(row, seen)
        match replaced:
            case Replaced.NOTHING_ANY_MORE:
                self._gone.clear()
                self._gone_until = 0
                for name, tokens in list(self._standing.items()):
                    self._change_standing(row, name, tokens)
            case Replaced.OLD_MESSAGES:
                self._gone_until = self._newest_seen
                self._stop_counting(row, until=self._gone_until)
            case Replaced.AS_HERE:
                self._gone_until = 0
                self._stop_counting(row, until=seen)
        self._newest_seen = seen
        return self._counted_tokens

    def _stop_counting(self, row: int, until: int) -> None:
        """Let no fold of a text up to the fact `until` count any more."""
        for name in list(self._counting):
            if self._last_covered[name] <= until:
                self._gone.add(name)
                self._change_standing(row, name, self._standing[name])

    def _apply_unseen_changes(self, row: int, seen: int) -> None:
        while self._unseen and self._unseen[0][0] <= seen:
            _seq, name, tokens = self._unseen.popleft()
            self._change_standing(row, name, tokens)

    def _change_standing(self, row: int, name: str, tokens: int | None) -> None:
        """End the run of a fold, and begin another one, unless it is the same."""
        runs = self.runs.setdefault(name, [])
        if self._last_covered[name] <= self._gone_until:
            self._gone.add(name)
        counts = name not in self._gone
        if runs and runs[-1].end == OPEN:
            last_run = runs[-1]
            if last_run.tokens == tokens and last_run.counts == counts:
                return
            if last_run.counts:
                self._counted_tokens -= last_run.tokens
            if last_run.first == row:
                runs.pop()  # No request was sent with it.
            else:
                last_run.end = row
        self._standing.pop(name, None)
        self._counting.pop(name, None)
        if tokens is None:
            return
        self._standing[name] = tokens
        runs.append(FoldRun(row, tokens, counts))
        if counts:
            self._counting[name] = None
            self._counted_tokens += tokens


def join_row_runs(runs: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Join runs of rows that overlap or touch each other. Return them in order."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined
