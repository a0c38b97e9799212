"""Finds what changed between two requests, and from which fact on: tools, system
prompt, folds, edits.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from helix_desktop.engine import facts
from helix_desktop.engine.messages import Block
from helix_desktop.fast_dataclass import dataclass

MOST_NAMED = 3  # At most this many of the changed tools are named.


class CauseKind(StrEnum):
    """Why tokens were sent as they were, in the words of `cost --json`."""

    READ = "read from the cache"
    FIRST = "first time"
    NEW = "new content"
    FOLD = "fold"
    TIME = "time ran out"
    TOOLS = "tools changed"
    SYSTEM = "system prompt changed"
    ORDER = "another order"
    MODEL = "model switched"
    EDIT = "edit or rewind"
    NOT_KEPT = "not kept by the provider"
    RULES = "not cacheable"
    BESIDE = "request beside the steps"
    UNKNOWN = "unexplained"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why tokens were sent as they were. `detail`: which fold, how long, which bytes."""

    kind: CauseKind
    detail: str = ""

    def describe_cause(self) -> str:
        """Return the cause as `cost` prints it."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind.value


@dataclass(frozen=True, slots=True)
class ChangePlace:
    """A change, its time, and the first fact that is shown differently. Below 1, the
    change precedes all messages.
    """

    place: int
    cause: Cause
    time: float = 0.0


def find_changes_between_requests(
    recorded_facts: Sequence[facts.Recorded],
    head: Sequence[object],
    head_now: Sequence[object],
    after: int,
    until: int,
) -> list[ChangePlace]:
    """Return changes by the facts from `after` to `until`. `head`s: tools before and now."""
    found = list(_changed_tools(head, head_now))
    covers = {
        one.fact.fold: one.fact
        for one in recorded_facts[:until]
        if isinstance(one.fact, facts.Folded)
    }
    batches: dict[str, str] = {}
    for recorded in recorded_facts[after:until]:
        fact = recorded.fact
        if isinstance(fact, facts.SystemSet | facts.RulesSet):
            found.append(
                ChangePlace(
                    0,
                    _describe_changed_bytes(recorded_facts[: recorded.seq - 1], fact),
                    recorded.time,
                )
            )
        elif isinstance(fact, facts.Folded):
            name = batches.setdefault(fact.batch or fact.fold, fact.fold)
            found.append(
                ChangePlace(
                    _first_seq_in_cover(fact.cover), Cause(CauseKind.FOLD, name), recorded.time
                )
            )
        elif (
            not isinstance(fact, facts.ToolsOffered)
            and (edit := _start_and_name_of_edit(fact, covers)) is not None
        ):
            found.append(ChangePlace(edit[0], Cause(CauseKind.EDIT, edit[1]), recorded.time))
    return found


def first_seq_in_piece(piece: Block | facts.ToolsOffered) -> int:
    """Return the first fact's number, 0 for the system prompt, or -1 for tools."""
    if isinstance(piece, facts.ToolsOffered):
        return -1
    return 0 if piece.role == "system" else _first_seq_in_cover(piece.source)


def _changed_tools(before: Sequence[object], now: Sequence[object]) -> Iterator[ChangePlace]:
    for one, other in zip(before, now, strict=False):
        if (
            isinstance(one, facts.ToolsOffered)
            and isinstance(other, facts.ToolsOffered)
            and one.tools != other.tools
        ):
            yield ChangePlace(-1, _describe_changed_tools(one.tools, other.tools))


def _describe_changed_tools(
    before: tuple[facts.ToolSpec, ...], now: tuple[facts.ToolSpec, ...]
) -> Cause:
    """Name the tools that differ, or say that only the order of keys or tools differs."""
    one, other = {tool.name: tool for tool in before}, {tool.name: tool for tool in now}
    differ = [
        name
        for name in {**one, **other}
        if _comparable_tool(one.get(name)) != _comparable_tool(other.get(name))
    ]
    if not differ:
        return Cause(CauseKind.ORDER, "of the tools")
    signs = (
        ("+" if name not in one else "−" if name not in other else "~") + name
        for name in differ[:MOST_NAMED]
    )
    more = f" and {len(differ) - MOST_NAMED} more" if len(differ) > MOST_NAMED else ""
    return Cause(CauseKind.TOOLS, ", ".join(signs) + more)


def _comparable_tool(tool: facts.ToolSpec | None) -> object:
    if tool is None:
        return None
    try:
        return tool.description, json.dumps(json.loads(tool.schema), sort_keys=True)
    except ValueError:
        return tool.description, tool.schema


def _describe_changed_bytes(
    before: Sequence[facts.Recorded], fact: facts.SystemSet | facts.RulesSet
) -> Cause:
    """Say which bytes of a system prompt or rules file differ."""
    name = fact.path if isinstance(fact, facts.RulesSet) else ""
    old = next(
        (
            one.fact.text
            for one in reversed(before)
            if (isinstance(one.fact, facts.SystemSet) and not name)
            or (isinstance(one.fact, facts.RulesSet) and one.fact.path == name)
        ),
        "",
    )
    start, end = _range_of_differing_bytes(
        old.encode("utf-8", "replace"), fact.text.encode("utf-8", "replace")
    )
    return Cause(CauseKind.SYSTEM, f"{name} bytes {start:,} to {end:,}".strip())


def _range_of_differing_bytes(old: bytes, new: bytes) -> tuple[int, int]:
    """Return where the first difference begins, and where the last one ends in the new text."""
    start = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    tail = zip(reversed(old[start:]), reversed(new[start:]), strict=False)
    same = next((at for at, (a, b) in enumerate(tail) if a != b), min(len(old), len(new)) - start)
    return start, len(new) - same


def find_first_changed_seq(fact: facts.Fact, folds: Mapping[str, facts.Folded]) -> int | None:
    """Return the first fact shown differently, 0 for system prompt or tools, or None."""
    match fact:
        case facts.SystemSet() | facts.RulesSet() | facts.ToolsOffered():
            return 0
        case facts.Rewound(to=to):
            return max(0, to) + 1
        case facts.Folded(cover=cover) | facts.Excluded(ref=cover) | facts.Included(ref=cover):
            return _first_seq_in_cover(cover)
        case (
            facts.Unfolded(fold=name) | facts.Refolded(fold=name) | facts.DocumentEdited(fold=name)
        ) if name in folds:
            return _first_seq_in_cover(folds[name].cover)
    return None


def _start_and_name_of_edit(
    fact: facts.Fact, folds: Mapping[str, facts.Folded]
) -> tuple[int, str] | None:
    """Return the first fact that a person's change affects, and a description of the change."""
    place = find_first_changed_seq(fact, folds)
    match fact:
        case facts.Rewound(to=to):
            return max(0, to) + 1, f"to {to}"
        case facts.Pinned(ref=ref) | facts.Unpinned(ref=ref):
            place = _first_seq_in_cover(ref)
        case facts.Forgotten():
            return 1, "forgotten"
        case facts.ConversationStarted(forked_from=origin, forked_at=to) if origin:
            return to + 1, f"to {to}"
    return (
        None
        if place is None
        else (place, f"{type(fact).__name__.lower()} {getattr(fact, 'fold', place)}")
    )


def _first_seq_in_cover(cover: facts.Cover) -> int:
    return max(1, cover.first if isinstance(cover, facts.Span) else cover.seq)
