"""The facts of a conversation, the way to one of them, and the settings of a moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    ModelRole,
    ModelSet,
    PolicySet,
    Recorded,
    Rewound,
    RulesSet,
    SystemSet,
    ToolsOffered,
)


@dataclass(frozen=True, eq=False)
class Conversation:
    """`facts[0]` is fact 1; None where a number is missing. `contents`: what is known
    of the cache, by hash.
    """

    facts: Sequence[Fact | None]
    contents: Mapping[Any, bytes] = field(default_factory=dict)
    times: Sequence[float] = ()

    def __getitem__(self, n: int) -> Fact | None:
        return self.facts[n - 1]

    def until(self, n: int) -> Iterator[tuple[int, Fact]]:
        """Facts 1 to n, on any way."""
        return ((m, fact) for m, fact in enumerate(self.facts[:n], 1) if fact is not None)


def conversation(
    recorded: Iterable[Recorded], contents: Mapping[Any, bytes] | None = None
) -> Conversation:
    known = {each.seq: each for each in recorded}
    all_facts = [known.get(n) for n in range(1, max(known, default=0) + 1)]
    times = [each.time if each else 0.0 for each in all_facts]
    return Conversation([each.fact if each else None for each in all_facts], contents or {}, times)


def before(c: Conversation, n: int) -> int:
    """The number of the fact before fact n; 0: there is none."""
    fact = c[n]
    return max(0, min(fact.to, n - 1)) if isinstance(fact, Rewound) else n - 1


def way(c: Conversation, n: int) -> list[int]:
    """The branch in force at n: the numbers on the way to n, read forwards."""
    numbers = []
    while n > 0:
        numbers.append(n)
        n = before(c, n)
    return numbers[::-1]


@dataclass
class Settings:
    title: str = ""
    system: SystemSet | None = None
    tools: ToolsOffered | None = None
    policy: PolicySet | None = None
    models: dict[ModelRole, ModelSet] = field(default_factory=dict)
    rules: dict[str, tuple[int, RulesSet]] = field(
        default_factory=dict
    )  # by path: number and fact, in order

    def tokens(self) -> dict[str, int]:
        return {
            "system": self.system.tokens if self.system and self.system.text else 0,
            "rules": sum(fact.tokens + 10 for _, fact in self.rules.values()),
            "tools": self.tools.tokens if self.tools else 0,
        }


def settings(c: Conversation, n: int) -> Settings:
    """What was set last, on any way."""
    found = Settings()
    for m, fact in c.until(n):
        _set(found, m, fact)
    return found


def _set(found: Settings, n: int, fact: Fact) -> None:
    match fact:
        case ConversationStarted() | ConversationChanged():
            found.title = _title(fact) if _title(fact) is not None else found.title  # type: ignore[assignment]
        case SystemSet():
            found.system = fact
        case ToolsOffered():
            found.tools = fact
        case PolicySet():
            found.policy = fact
        case ModelSet():
            found.models[fact.role] = fact
        case RulesSet():
            _set_rules(found.rules, n, fact)
        case _:
            pass


def _title(fact: ConversationStarted | ConversationChanged) -> str | None:
    return fact.title or None if isinstance(fact, ConversationStarted) else fact.title


def _set_rules(rules: dict[str, tuple[int, RulesSet]], n: int, fact: RulesSet) -> None:
    if not fact.text:
        rules.pop(fact.path, None)
    elif fact.path not in rules or rules[fact.path][1] != fact:
        rules[fact.path] = (n, fact)
