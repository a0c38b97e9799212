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

from helix_desktop.engine.facts import (
    Cover,
    Excluded,
    Fact,
    Included,
    PartRef,
    Recorded,
    Refolded,
    Rewound,
    Span,
    Unfolded,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.live_folds import FoldEffect, LiveFolds
from helix_desktop.engine.state.request_settings import RequestSettings
from helix_desktop.engine.state.token_ledger import TokenLedger
from helix_desktop.engine.tool_call_parsing import PendingCall
from helix_desktop.fast_dataclass import dataclass

Run = tuple[int, int]  # The first and the last of neighbouring fact numbers.


def _no_numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class FactTree:
    """All facts of a conversation, and lists by which a past moment is found in them.

    It only grows, so that other threads can read it.
    """

    facts: list[Recorded] = field(default_factory=list)
    # The fact numbers of messages on all branches.
    messages: array[int] = field(default_factory=_no_numbers)
    rewinds: array[int] = field(default_factory=_no_numbers)  # The fact numbers of rewinds.
    targets: array[int] = field(default_factory=_no_numbers)  # What each rewind went back to.
    effects: list[FoldEffect] = field(default_factory=list)
    effect_seqs: array[int] = field(default_factory=_no_numbers)  # Of `effects`, for a search.
    settings: list[RequestSettings] = field(default_factory=lambda: [RequestSettings()])
    settings_seqs: array[int] = field(default_factory=_no_numbers)
    # New ids for calls whose own id is empty or not unique.
    ids: dict[PartRef, str] = field(default_factory=dict)
    # The call that a result answers, by the seq of the result, on all branches.
    answered: dict[int, PendingCall] = field(default_factory=dict)
    # The `UserSaid.command` of all messages that have one, on all branches.
    commands_of_messages: set[str] = field(default_factory=set)
    forgotten: dict[Digest, int] = field(default_factory=dict)  # By entry: the fact that says so.
    ledger: TokenLedger = field(default_factory=TokenLedger)

    def note_command_of_message(self, command: str) -> None:
        if command:
            self.commands_of_messages.add(command)

    def runs_leading_to(self, seq: int) -> list[Run]:
        """Return the path to `seq`, oldest first, without what rewinds left behind."""
        runs: list[Run] = []
        last_of_run = seq
        while last_of_run > 0:
            rewind_count = bisect_right(self.rewinds, last_of_run)
            if rewind_count == 0:
                runs.append((1, last_of_run))
                break
            # The run begins with the last rewind, and continues what that went back to.
            last_rewind = rewind_count - 1
            runs.append((self.rewinds[last_rewind], last_of_run))
            last_of_run = self.targets[last_rewind]
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

    def add_effect(self, effect: FoldEffect) -> None:
        self.effects.append(effect)
        self.effect_seqs.append(effect.seq)

    def add_settings(self, seq: int, settings: RequestSettings) -> None:
        self.settings.append(settings)
        self.settings_seqs.append(seq)

    def settings_at(self, seq: int) -> RequestSettings:
        # The list begins with the settings from before the first change.
        change_count = bisect_right(self.settings_seqs, seq)
        return self.settings[change_count]

    def taken_out_parts(self) -> dict[Cover, None]:
        """Return what the user excluded and has not restored, on all branches."""
        taken_out: dict[Cover, None] = {}
        for effect in self.effects:
            fact = effect.fact
            if isinstance(fact, Excluded):
                taken_out[fact.ref] = None
            elif isinstance(fact, Included):
                taken_out.pop(fact.ref, None)
        return taken_out

    def is_fold_undone_by_user(self, fold: str) -> bool:
        """Whether the user undid a fold, on whatever branch, and has not redone it since."""
        for effect in reversed(self.effects):
            if isinstance(effect.fact, Unfolded | Refolded) and effect.fact.fold == fold:
                return isinstance(effect.fact, Unfolded)
        return False

    def rewind_that_keeps_choices(self, to: int, *, again: bool = False) -> tuple[Fact, ...]:
        """Return the facts of a rewind: with it, each fold stays undone or not as the user last
        left it. What he chose after `to`, or on another branch, would else be forgotten.
        """
        last_choices: dict[str, Unfolded | Refolded] = {}
        for effect in self.effects:
            if isinstance(effect.fact, Unfolded | Refolded):
                last_choices[effect.fact.fold] = effect.fact
        rewind = Rewound(to, again=again)
        if not last_choices:
            return (rewind,)
        folds = self.folds_at(to)
        choices: list[Fact] = []
        for name, choice in last_choices.items():
            is_in_force = isinstance(choice, Refolded)
            if name in folds.folds and is_in_force != (name in folds.live):
                choices.append(choice)
        return (rewind, *choices)

    def folds_at(self, seq: int, taken_out: Iterable[Cover] = ()) -> LiveFolds:
        """Return what was shown when `seq` was the newest fact. `taken_out`: also excluded."""
        past_folds = LiveFolds(facts=self.facts, ids=self.ids)
        for first, last in self.runs_leading_to(seq):
            first_message = bisect_left(self.messages, first)
            end_of_messages = bisect_right(self.messages, last)
            past_folds.order += self.messages[first_message:end_of_messages]
            first_effect = bisect_left(self.effect_seqs, first)
            end_of_effects = bisect_right(self.effect_seqs, last)
            for effect in self.effects[first_effect:end_of_effects]:
                past_folds.apply_fold_change(effect.fact, effect.kept_parts)
        past_folds.exclusions.update(dict.fromkeys(taken_out))
        if past_folds.order:
            for item in past_folds.build_items(Span(0, seq)):
                past_folds.append_item(item)
        return past_folds
