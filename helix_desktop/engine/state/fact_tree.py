"""The tree of a conversation's facts: which fact each one follows, and which changed what is shown.

A rewind is a fact, too, and the next facts follow the one it went back to. So the path
to any fact is a few runs of numbers. What held there is found from the messages and
changes on this path, without replaying them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import field

from helix_desktop.engine.facts import Cover, Excluded, Included, PartRef, Recorded, Span
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.live_folds import Effect, LiveFolds
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.state.token_ledger import TokenLedger
from helix_desktop.engine.tool_call_parsing import PendingCall
from helix_desktop.fast_dataclass import dataclass

Run = tuple[int, int]  # The fact numbers with which a run begins and ends.


def _no_numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class FactTree:
    """Only grows, so that other threads can read it."""

    facts: list[Recorded] = field(default_factory=list)
    # The fact numbers of messages on all branches.
    messages: array[int] = field(default_factory=_no_numbers)
    rewinds: array[int] = field(default_factory=_no_numbers)  # The fact numbers of rewinds.
    targets: array[int] = field(default_factory=_no_numbers)  # What each rewind went back to.
    effects: list[Effect] = field(default_factory=list)
    effect_seqs: array[int] = field(default_factory=_no_numbers)
    settings: list[RequestSettings] = field(default_factory=lambda: [RequestSettings()])
    settings_seqs: array[int] = field(default_factory=_no_numbers)
    # New ids for calls whose own id is empty or not unique.
    ids: dict[PartRef, str] = field(default_factory=dict)
    # The call that a result answers, by the seq of the result, on all branches.
    answered: dict[int, PendingCall] = field(default_factory=dict)
    forgotten: dict[Digest, int] = field(default_factory=dict)  # By entry: the fact that says so.
    ledger: TokenLedger = field(default_factory=TokenLedger)

    def runs_leading_to(self, seq: int) -> list[Run]:
        """Return the path to `seq`, oldest first, without what rewinds left behind."""
        runs: list[Run] = []
        while seq > 0:
            rewinds_until = bisect_right(self.rewinds, seq)
            if rewinds_until == 0:
                runs.append((1, seq))
                break
            last_rewind = rewinds_until - 1
            runs.append((self.rewinds[last_rewind], seq))
            seq = self.targets[last_rewind]
        runs.reverse()
        return runs

    def facts_leading_to(self, seq: int) -> Iterator[Recorded]:
        for first, last in self.runs_leading_to(seq):
            yield from self.facts[first - 1 : last]

    def add_rewind(self, seq: int, to: int) -> int:
        """Add a rewind at `seq`. Return where it really went back to."""
        target = max(0, min(to, seq - 1))
        self.rewinds.append(seq)
        self.targets.append(target)
        return target

    def add_effect(self, effect: Effect) -> None:
        self.effects.append(effect)
        self.effect_seqs.append(effect[0])

    def add_settings(self, seq: int, settings: RequestSettings) -> None:
        self.settings.append(settings)
        self.settings_seqs.append(seq)

    def settings_at(self, seq: int) -> RequestSettings:
        return self.settings[bisect_right(self.settings_seqs, seq)]

    def taken_out_parts(self) -> dict[Cover, None]:
        """Return what the user excluded and has not restored, on all branches."""
        taken_out: dict[Cover, None] = {}
        for _, fact, _ in self.effects:
            if isinstance(fact, Excluded):
                taken_out[fact.ref] = None
            elif isinstance(fact, Included):
                taken_out.pop(fact.ref, None)
        return taken_out

    def folds_at(self, seq: int, taken_out: Iterable[Cover] = ()) -> LiveFolds:
        """Return what was shown when `seq` was the newest fact. `taken_out`: also excluded."""
        then = LiveFolds(facts=self.facts, ids=self.ids)
        for first, last in self.runs_leading_to(seq):
            first_message = bisect_left(self.messages, first)
            end_of_messages = bisect_right(self.messages, last)
            then.order += self.messages[first_message:end_of_messages]
            first_effect = bisect_left(self.effect_seqs, first)
            end_of_effects = bisect_right(self.effect_seqs, last)
            for _, fact, kept in self.effects[first_effect:end_of_effects]:
                then.apply_fold_change(fact, kept)
        then.exclusions.update(dict.fromkeys(taken_out))
        if then.order:
            for item in then.build_items(Span(0, seq)):
                then.append_item(item)
        return then
