"""The texts and calls of messages and of recorded facts, as tests compare them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Recorded,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)


def texts_in(parts: Iterable[object]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]


def calls_in(parts: Iterable[object]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]


def user_texts(facts: Iterable[Fact | Recorded]) -> list[str]:
    """Each text that the user sent, in the order of the facts."""
    texts: list[str] = []
    for fact in _without_places(facts):
        if isinstance(fact, UserSaid):
            texts += texts_in(fact.parts)
    return texts


def reply_texts(facts: Iterable[Fact | Recorded]) -> list[str]:
    """Each text of the model's replies, in the order of the facts."""
    texts: list[str] = []
    for fact in _without_places(facts):
        if isinstance(fact, ModelReplied):
            texts += texts_in(fact.parts)
    return texts


def reply_calls(facts: Iterable[Fact | Recorded]) -> list[ToolCall]:
    """Each call of the model's replies, in the order of the facts."""
    calls: list[ToolCall] = []
    for fact in _without_places(facts):
        if isinstance(fact, ModelReplied):
            calls += calls_in(fact.parts)
    return calls


def missing_results(facts: Iterable[Fact | Recorded]) -> Counter[str]:
    """For each call how many results are missing: one, or less than none where it has too many."""
    missing: Counter[str] = Counter()
    for fact in _without_places(facts):
        if isinstance(fact, ModelReplied):
            missing.update(call.id for call in calls_in(fact.parts))
        if isinstance(fact, ToolReturned):
            missing[fact.call] -= 1
    return missing


def _without_places(facts: Iterable[Fact | Recorded]) -> Iterator[Fact]:
    for fact in facts:
        yield fact.fact if isinstance(fact, Recorded) else fact
