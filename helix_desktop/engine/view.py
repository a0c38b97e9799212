"""What the model is sent, computed from the facts: `view(facts)`, pure, and `State.advance`, the same step by step.

A view is: the system prompt, the rules files, then the line's messages in order, with the text of a fold in place of
what it covers. Settings (system prompt, rules, tools, policy, models) are those appended last; messages, folds, pins
and exclusions follow the line, so a rewind to `k` shows them as they stood at `k`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from helix_desktop.engine.blocks import Block, Kind, Role, View
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    Folded,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    PolicySet,
    Recorded,
    Rewound,
    RulesSet,
    Spent,
    SystemSet,
    Text,
    ToolReturned,
    ToolsOffered,
)
from helix_desktop.engine.history.branch import Branch

RULES_HEADER_TOKENS = 10
Rules = tuple[tuple[int, RulesSet], ...]
MOST_DIGITS = 16
SAMPLES = 9  # how many replies the correction factor is learned from


@dataclass(frozen=True, slots=True)
class Settings:
    """What a request depends on besides the messages."""

    system: SystemSet = SystemSet("", 0)
    system_seq: int = 0
    rules: Rules = ()
    tools: ToolsOffered = ToolsOffered((), 0)
    policy: PolicySet | None = None
    models: tuple[tuple[str, ModelSet], ...] = ()

    def after(self, recorded: Recorded) -> Settings:
        """These settings with one more fact."""
        match recorded.fact:
            case SystemSet() as system:
                return replace(self, system=system, system_seq=recorded.seq)
            case RulesSet() as rules:
                return replace(self, rules=_with_rules(self.rules, recorded.seq, rules))
            case ToolsOffered() as tools:
                return replace(self, tools=tools)
            case PolicySet() as policy:
                return replace(self, policy=policy)
            case ModelSet() as model:
                return replace(self, models=tuple(sorted({**dict(self.models), model.role: model}.items(), key=_role)))
        return self

    def model(self, role: ModelRole) -> ModelSet | None:
        """The model chosen for a role; None where none was."""
        return dict(self.models).get(role)

    @property
    def values(self) -> tuple[object, ...]:
        """What is set, wherever it was said."""
        rules = tuple(fact for _, fact in self.rules)
        return (self.system, rules, self.tools, self.policy, self.models)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The system prompt, then each rules file word for word."""
        texts = [(self.system_seq, Text(self.system.text, self.system.tokens), False)] if self.system.text else []
        for seq, rules in self.rules:
            text = f"Rules of this workspace, from {rules.path}:\n\n{rules.text}"
            texts.append((seq, Text(text, rules.tokens + RULES_HEADER_TOKENS), True))
        return tuple(
            Block(Kind.SYSTEM, Role.SYSTEM, PartRef(seq), text, text.tokens, pinned=pinned)
            for seq, text, pinned in texts
        )


@dataclass(slots=True)
class State:
    """The facts of one conversation and the view they come to. `advance` is the only way in."""

    facts: list[Recorded] = field(default_factory=list)
    settings: Settings = Settings()
    branch: Branch = field(default_factory=Branch)
    spent: list[Spent | ModelReplied] = field(default_factory=list)
    billed: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)  # per model: (counted, billed) of replies
    title: str = ""
    last_fold: int = 0  # the highest number in the name of a fold or a batch, on any line
    _returned: dict[bytes, int] = field(default_factory=dict)
    _before: list[int] = field(default_factory=list)  # of each fact, the one before it on its line
    _blocks: list[Block] = field(default_factory=list)  # of the head and of all items, as the last view had them
    _starts: list[int] = field(default_factory=list)  # where the blocks of each item begin
    _head: tuple[Block, ...] = ()
    _head_shown: tuple[Block, ...] = ()
    _shown: View | None = None

    @property
    def last_seq(self) -> int:
        """The number of the newest fact; 0 before the first."""
        return self.facts[-1].seq if self.facts else 0

    @property
    def live_folds(self) -> tuple[Folded, ...]:
        """The folds in force, oldest first; what a longer one covers is among them."""
        return tuple(
            sorted((self.branch.folds[name] for name in self.branch.live), key=lambda f: self.branch.ages[f.fold])
        )

    @property
    def tokens(self) -> int:
        """What the view counts in the base encoding; `budget.py` corrects it."""
        return self.branch.total_tokens + sum(block.tokens for block in self._head) + self.settings.tools.tokens

    @property
    def time(self) -> float:
        """When the newest fact was appended."""
        return self.facts[-1].time if self.facts else 0.0

    def advance(self, recorded: Recorded) -> None:
        """Take in the next fact. Costs the same however long the conversation is; a rewind costs its line."""
        self._shown = None
        self.facts.append(recorded)
        fact = recorded.fact
        if isinstance(fact, Rewound):
            self._rewind(fact.to)
            return
        self._before.append(recorded.seq - 1)
        self._note(recorded)
        settings = self.settings.after(recorded)
        if settings is not self.settings:
            self.settings, self._head = settings, settings.blocks
        else:
            self.branch.advance(recorded)

    def view(self) -> View:
        """The view now. Blocks are shared with the views before; nothing is computed twice."""
        if self._shown is None:
            self._catch_up()
            blocks = tuple(self._blocks)
            tools, main = self.settings.tools, self.settings.model(ModelRole.MAIN)
            effort = main.effort if main else ""
            self._shown = View(blocks, tools.tools, tools.tokens, len(blocks) - self._unfinished(), effort)
        return self._shown

    def _catch_up(self) -> None:
        """Bring the list of blocks up to date from the first item that changed."""
        changed = self.branch.take_changed()
        if self._head is not self._head_shown:
            self._head_shown, self._blocks, self._starts = self._head, list(self._head), []
        if changed < len(self._starts):
            del self._blocks[self._starts[changed] :]
            del self._starts[changed:]
        for item in self.branch.items[len(self._starts) :]:
            self._starts.append(len(self._blocks))
            self._blocks.extend(item.blocks)

    def holds(self, fact: Fact) -> bool:
        """Whether the settings are what this fact would make them: then it need not be appended."""
        return self.settings.after(Recorded("", 0, 0.0, fact)).values == self.settings.values

    def fold(self, name: str) -> Folded | None:
        """The fold, live or undone, with the user's wording where there is one; None where the line has none."""
        return self.branch.folds.get(name)

    def present(self) -> list[Recorded]:
        """The facts the view goes on from, oldest first: all but those a rewind left behind."""
        chain = []
        seq = len(self.facts)
        while seq > 0:
            chain.append(self.facts[seq - 1])
            seq = self._before[seq - 1]
        return chain[::-1]

    def last_return_of(self, digest: Digest) -> int:
        """The seq of the last output with this content; 0 where there is none."""
        return self._returned.get(digest.raw, 0)

    def at(self, seq: int) -> State:
        """The state as it was when `seq` was the newest fact."""
        return state_of(self.facts[: max(0, seq)])

    def _unfinished(self) -> int:
        """How many blocks at the end belong to a batch that is not whole yet."""
        if not self.branch.running_calls:
            return 0
        begun = self.branch.steps[-1]
        count = 0
        for item in reversed(self.branch.items):
            if item.first < begun:
                break
            count += len(item.blocks)
        return count

    def _rewind(self, to: int) -> None:
        """Go on from `to`: the line is made again from the facts that lead there."""
        self._before.append(max(0, min(to, len(self.facts) - 1)))
        self.branch = Branch()
        for recorded in self.present():
            self.branch.advance(recorded)

    def _note(self, recorded: Recorded) -> None:
        """What is remembered of a fact whatever line it is on."""
        match recorded.fact:
            case ModelReplied() as reply:
                self._bill(reply)
            case Spent() as spent:
                self.spent.append(spent)
            case Folded(fold=name, batch=batch):
                self.last_fold = max(self.last_fold, _number(name), _number(batch))
            case ToolReturned(output=output):
                self._returned[output.digest.raw] = recorded.seq
            case ConversationStarted(title=title) if title:
                self.title = title
            case ConversationChanged(title=str() as title):
                self.title = title
            case _:
                pass

    def _bill(self, reply: ModelReplied) -> None:
        """Remember what was counted and what the provider reported, to learn from."""
        self.spent.append(reply)
        newest = self.branch.order[-1] if self.branch.order else 0
        if reply.usage.input > 0 and (reply.saw == 0 or reply.saw >= newest) and self.tokens > 0:
            samples = self.billed.setdefault(reply.model, deque(maxlen=SAMPLES))
            samples.append((self.tokens, reply.usage.input))


def _with_rules(known: Rules, seq: int, fresh: RulesSet) -> Rules:
    """A changed file stays in its place among the others; an empty one goes."""
    changed = tuple((seq, fresh) if kept.path == fresh.path and kept != fresh else (at, kept) for at, kept in known)
    if all(kept.path != fresh.path for _, kept in known):
        changed = (*known, (seq, fresh))
    return tuple((at, kept) for at, kept in changed if kept.text)


def _number(name: str) -> int:
    """The number at the end of a fold's name; 0 where there is none."""
    end = name.rpartition("-")[2]
    return int(end) if end.isdecimal() and len(end) < MOST_DIGITS else 0


def state_of(facts: Iterable[Recorded]) -> State:
    """The state these facts come to."""
    state = State()
    for recorded in facts:
        state.advance(recorded)
    return state


def view(facts: Sequence[Recorded]) -> View:
    """What the model is sent after these facts."""
    return state_of(facts).view()


def _role(named: tuple[str, ModelSet]) -> str:
    return named[0]
