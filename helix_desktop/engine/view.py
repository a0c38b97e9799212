"""Computes what the model is sent from the facts. `ConversationState` does it fact by fact.

A view has the system prompt, the rules files, and the branch's messages in order, with
a fold's text in place of what it covers. Settings (system prompt, rules, tools, policy,
models) are always the newest. Messages, folds, pins and exclusions are those of the
branch: a rewind to `k` shows them as they were then.
"""

import itertools
from array import array
from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    FilesChanged,
    Folded,
    Forgotten,
    ModelReplied,
    Recorded,
    Rewound,
    Spent,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import Block, View
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.fact_tree import FactTree
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.request_settings import RequestSettings

MOST_DIGITS = 16


class ConversationState(Moment):
    """The facts of a conversation and their view. Only `advance_state` changes it."""

    branch: ConversationBranch

    def __init__(self) -> None:
        self.record = FactTree()
        self.seq = 0  # The number of the newest fact.
        self.has_unknown_facts = False  # See `newest_facts.py`.
        self.settings = RequestSettings()
        self.branch = self._empty_branch()
        self.spent: list[Spent | ModelReplied] = []
        self.title = ""
        self.own_model = ""  # See `ConversationChanged.model`.
        # The user's choices for the foreign agent, by option ID.
        self.agent_choices: dict[str, str] = {}
        self.own_copy = ""  # See `ConversationStarted.copy`.
        self.agent = ""  # The connected agent that writes this conversation.
        self.acp_agent = ""  # See `ConversationStarted.acp_agent`.
        self.last_fold = 0  # The highest number in the names of folds and batches on any branch.
        self.last_undo = 0  # The number of the last undo of changes to files, on any branch.
        # By the hash of its content: the number of the last output that had it.
        self._output_seqs: dict[bytes, int] = {}
        # The blocks of the settings, followed by those of all items.
        self._blocks: list[Block] = []
        self._item_starts = array("q")  # The index in `_blocks` at which each item begins.
        self._settings_blocks: tuple[Block, ...] = ()  # Those at the beginning of `_blocks`.
        self._view: View | None = None  # The current view, once it has been asked for.
        # The original, for a copy with other settings.
        self._original: ConversationState | None = None

    @property
    def facts(self) -> list[Recorded]:
        """Return everything that ever happened here; it grows."""
        return self.record.facts

    def advance_state(self, recorded: Recorded, branch: ConversationBranch | None = None) -> None:
        """Follow the conversation by one fact, in constant time.

        For a rewind, the branch that it goes back to is rebuilt, which takes long in a long
        conversation, unless it is passed in.
        """
        self._view = None
        self.record.facts.append(recorded)
        self.record.ledger.add_figures_of_fact(recorded)
        self.seq = recorded.seq
        fact = recorded.fact
        if isinstance(fact, Rewound):
            target = self.record.add_rewind(recorded.seq, fact.to)
            self.branch = branch or self.branch_at_rewind(target)
        else:
            self._remember_fact_of_any_branch(recorded)
            self._apply_change(recorded)
        settings_tokens = self.settings.settings_tokens
        tokens_by_kind = self.branch.tokens_by_kind(settings_tokens)
        tokens_without_folds = self.branch.unfolded + settings_tokens
        tokens_shown = sum(tokens_by_kind)
        self.record.ledger.append_view_tokens_of_fact(
            tokens_shown, tokens_without_folds, tokens_by_kind
        )
        fold_savings = self.record.ledger.fold_savings
        tokens_missing = tokens_without_folds - tokens_shown
        if isinstance(fact, Rewound):
            path = self.record.runs_leading_to(recorded.seq)
            fold_savings.follow_kept_out_to_branch(recorded.seq, tokens_missing, self.branch, path)
        else:
            fold_savings.follow_kept_out_tokens(recorded, tokens_missing, self.branch)

    def skip_unknown_facts(self, next_known: Recorded) -> None:
        """Take the facts before `next_known` for ones that change nothing: they are not known yet.

        A fact's number stays its place in the list, so nothing takes another fact for one of them.
        """
        unknown = replace(next_known, seq=0, fact=ConversationChanged())
        unknown_count = next_known.seq - 1 - self.seq
        self.record.facts.extend([unknown] * unknown_count)
        self.record.ledger.append_unknown_facts(unknown_count)
        self.seq = next_known.seq - 1
        self.has_unknown_facts = True

    def last_seq_left_by_rewind(self) -> int:
        """Return the last fact before the newest rewind that left something, or 0 if none did."""
        runs = self.record.runs_leading_to(self.seq)
        for (_, last_before), (first, _) in reversed(list(itertools.pairwise(runs))):
            left_facts = self.facts[last_before : first - 1]
            if any(isinstance(recorded.fact, UserSaid | ModelReplied) for recorded in left_facts):
                return first - 1
        return 0

    def branch_at_rewind(self, seq: int) -> ConversationBranch:
        """Rebuild the branch from which a rewind to `seq` continues."""
        branch = self._empty_branch()
        for recorded in self.record.facts_leading_to(seq):
            branch.advance_branch(recorded)
        return branch

    def _empty_branch(self) -> ConversationBranch:
        return ConversationBranch(
            facts=self.record.facts, ids=self.record.ids, answered=self.record.answered
        )

    def get_view(self) -> View:
        """Return the current view. It shares its blocks with earlier views."""
        if self._view is None:
            self._view = self._view_of_blocks(self._current_blocks())
        return self._view

    def _current_blocks(self) -> tuple[Block, ...]:
        if self._original is None:
            self._refresh_blocks()
            return tuple(self._blocks)
        # A copy that is only looked at shows the same messages after other settings.
        first_message_block = len(self._original.settings.settings_blocks)
        message_blocks = self._original.get_view().blocks[first_message_block:]
        return self.settings.settings_blocks + message_blocks

    def with_settings(self, settings: RequestSettings) -> "ConversationState":
        """Return a copy with other settings, only to look at."""
        state_copy = copy(self)
        state_copy.settings = settings
        state_copy._view = None  # noqa: SLF001 -- a copy of this one
        state_copy._original = self  # noqa: SLF001 -- a copy of this one
        return state_copy

    def has_settings_of_fact(self, fact: Fact) -> bool:
        """Whether this fact would change no setting."""
        settings_after = self.settings.settings_after(Recorded("", 0, 0.0, fact))
        return settings_after.comparable_settings == self.settings.comparable_settings

    def seq_of_last_output_with_content(self, digest: Digest) -> int:
        """Return the last output on any branch that had this content, or 0."""
        return self._output_seqs.get(digest.raw, 0)

    def is_shown_whole(self, digest: Digest) -> bool:
        """Whether the last output with this content is unchanged in the view."""
        return self.is_message_whole(self.seq_of_last_output_with_content(digest))

    def is_message_whole(self, seq: int) -> bool:
        """Whether the view shows the whole message."""
        if not self.branch.has_message(seq):
            return False
        blocks = self.branch.item_at(seq).blocks
        return bool(blocks) and not any(block.fold for block in blocks)

    def _reply_with_open_calls(self) -> int:
        if not self.branch.running_calls:
            return 0
        return self.branch.steps[-1]

    def _apply_change(self, recorded: Recorded) -> None:
        """Apply a fact to the settings, which hold on every branch, or else to the current branch.

        What it changes is also recorded for past moments.
        """
        settings = self.settings.settings_after(recorded)
        if settings is not self.settings:
            self.settings = settings
            self.record.add_settings(recorded.seq, settings)
            return
        message_count = len(self.branch.order)
        effect = self.branch.advance_branch(recorded)
        if effect is not None:
            self.record.add_effect(effect)
        elif len(self.branch.order) > message_count:
            self.record.messages.append(recorded.seq)

    def _refresh_blocks(self) -> None:
        """Update the list of all blocks, from the first item on that has changed since it was
        made, so that a long conversation is not gone through again for each request.
        """
        first_changed = self.branch.pop_first_changed_index()
        if self._settings_blocks is not self.settings.settings_blocks:
            self._settings_blocks = self.settings.settings_blocks
            self._blocks = list(self._settings_blocks)
            self._item_starts = array("q")
        if first_changed < len(self._item_starts):
            first_changed_block = self._item_starts[first_changed]
            del self._blocks[first_changed_block:]
            del self._item_starts[first_changed:]
        unchanged_count = len(self._item_starts)
        for item in self.branch.items[unchanged_count:]:
            self._item_starts.append(len(self._blocks))
            self._blocks += item.blocks

    def _remember_fact_of_any_branch(self, recorded: Recorded) -> None:
        """Remember what counts on every branch, such as the highest number of a fold."""
        match recorded.fact:
            case ModelReplied() | Spent() as paid:
                self.spent.append(paid)
            case Folded(fold=name, batch=batch):
                number_of_fold = _number_in_fold_name(name)
                number_of_batch = _number_in_fold_name(batch)
                self.last_fold = max(self.last_fold, number_of_fold, number_of_batch)
            case Forgotten(entries=entries):
                self.record.forgotten.update(dict.fromkeys(entries, recorded.seq))
            case FilesChanged(by="undo"):
                self.last_undo = recorded.seq
            case UserSaid(command=command):
                self.record.note_command_of_message(command)
            case ToolReturned(output=output):
                self._output_seqs[output.digest.raw] = recorded.seq
            case ConversationStarted() as started:
                self.title = started.title or self.title
                self.agent = started.agent
                self.own_copy = started.copy or self.own_copy
                self.acp_agent = started.acp_agent or self.acp_agent
            case ConversationChanged() as changed:
                self._remember_changed_conversation(changed)

    def _remember_changed_conversation(self, changed: ConversationChanged) -> None:
        """Remember what the user changed: an option of a foreign agent, given as "id=value", or
        the title, the private copy or the model.
        """
        if changed.choice is not None:
            identity, _, value = changed.choice.partition("=")
            self.agent_choices[identity] = value
            return
        if changed.title is not None:
            self.title = changed.title
        if changed.copy is not None:
            self.own_copy = changed.copy
        if changed.model is not None:
            self.own_model = changed.model


def _number_in_fold_name(name: str) -> int:
    """Return the number at the end of a fold's name, or 0."""
    _, _, digits = name.rpartition("-")
    if not digits.isdecimal() or len(digits) >= MOST_DIGITS:
        return 0
    return int(digits)


def build_state(facts: Iterable[Recorded]) -> ConversationState:
    """Compute a conversation's state from all of its facts."""
    state = ConversationState()
    for recorded in facts:
        state.advance_state(recorded)
    return state
