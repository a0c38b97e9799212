"""Finds what changed between two requests, and from which fact on: tools, system
prompt, folds, edits.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
    UNANSWERED = "no whole answer, estimated"
    UNKNOWN = "unexplained"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why tokens were sent as they were. `detail`: which fold, how long, which bytes."""

    kind: CauseKind
    detail: str = ""

    def describe_cause(self) -> str:
        """Return the cause as `cost` prints it."""
        if not self.detail:
            return self.kind.value
        return f"{self.kind}: {self.detail}"


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
    tools_before: Sequence[object],
    tools_after: Sequence[object],
    after: int,
    until: int,
) -> list[ChangePlace]:
    """Return what changed between two requests: the tools, and what the facts from `after` to
    `until` changed, such as a fold, an edit or another system prompt.
    """
    folds: dict[str, facts.Folded] = {}
    for recorded in recorded_facts[:until]:
        if isinstance(recorded.fact, facts.Folded):
            folds[recorded.fact.fold] = recorded.fact

    changes = list(_changed_tools(tools_before, tools_after))
    # Folds of one batch are one change, which is called after the first of them.
    first_of_batch: dict[str, str] = {}
    for recorded in recorded_facts[after:until]:
        fact = recorded.fact
        if isinstance(fact, facts.ToolsOffered):
            continue  # What was offered is compared above.
        if isinstance(fact, (facts.SystemSet, facts.RulesSet)):
            facts_before = recorded_facts[: recorded.seq - 1]
            cause = _describe_changed_bytes(facts_before, fact)
            changes.append(ChangePlace(0, cause, recorded.time))
        elif isinstance(fact, facts.Folded):
            batch = fact.batch or fact.fold
            name = first_of_batch.setdefault(batch, fact.fold)
            cause = _cause_of_fold(fact, name)
            place = _first_seq_in_cover(fact.cover)
            changes.append(ChangePlace(place, cause, recorded.time))
        else:
            edit = _find_edit(fact, folds)
            if edit is not None:
                changes.append(replace(edit, time=recorded.time))
    return changes


def _cause_of_fold(fold: facts.Folded, name: str) -> Cause:
    if fold.is_by_agent:
        # The connected agent changed its own history, and nothing was folded here.
        return Cause(CauseKind.EDIT)
    return Cause(CauseKind.FOLD, name)


def first_seq_in_piece(piece: Block | facts.ToolsOffered) -> int:
    """Return the first fact's number, 0 for the system prompt, or -1 for tools."""
    if isinstance(piece, facts.ToolsOffered):
        return -1
    if piece.role == "system":
        return 0
    return _first_seq_in_cover(piece.source)


def _changed_tools(
    tools_before: Sequence[object], tools_after: Sequence[object]
) -> Iterator[ChangePlace]:
    for before, after in zip(tools_before, tools_after, strict=False):
        if not isinstance(before, facts.ToolsOffered) or not isinstance(after, facts.ToolsOffered):
            continue
        if before.tools != after.tools:
            yield ChangePlace(-1, _describe_changed_tools(before.tools, after.tools))


def _describe_changed_tools(
    tools_before: tuple[facts.ToolSpec, ...], tools_after: tuple[facts.ToolSpec, ...]
) -> Cause:
    """Name the tools that differ, or say that only the order of keys or tools differs."""
    before_by_name = {tool.name: tool for tool in tools_before}
    after_by_name = {tool.name: tool for tool in tools_after}
    changes = []
    for name in before_by_name | after_by_name:
        before = before_by_name.get(name)
        after = after_by_name.get(name)
        if _comparable_tool(before) == _comparable_tool(after):
            continue
        if before is None:
            changes.append(f"+{name}")
        elif after is None:
            changes.append(f"−{name}")
        else:
            changes.append(f"~{name}")
    if not changes:
        return Cause(CauseKind.ORDER, "of the tools")
    description = ", ".join(changes[:MOST_NAMED])
    if len(changes) > MOST_NAMED:
        description += f" and {len(changes) - MOST_NAMED} more"
    return Cause(CauseKind.TOOLS, description)


def _comparable_tool(tool: facts.ToolSpec | None) -> object:
    """Return what matters of a tool: the order of keys in its schema does not."""
    if tool is None:
        return None
    try:
        return tool.description, json.dumps(json.loads(tool.schema), sort_keys=True)
    except (ValueError, RecursionError):
        return tool.description, tool.schema


def _describe_changed_bytes(
    before: Sequence[facts.Recorded], fact: facts.SystemSet | facts.RulesSet
) -> Cause:
    """Say which bytes of a system prompt or rules file differ."""
    name = ""
    if isinstance(fact, facts.RulesSet):
        name = fact.path
    old_bytes = _last_text_before(before, name).encode("utf-8", "replace")
    new_bytes = fact.text.encode("utf-8", "replace")
    start, end = _range_of_differing_bytes(old_bytes, new_bytes)
    return Cause(CauseKind.SYSTEM, f"{name} bytes {start:,} to {end:,}".strip())


def _last_text_before(recorded_facts: Sequence[facts.Recorded], path: str) -> str:
    """Return the rules file's last text, or without a path that of the system prompt."""
    for recorded in reversed(recorded_facts):
        match recorded.fact:
            case facts.SystemSet(text=text) if not path:
                return text
            case facts.RulesSet(path=rules_path, text=text) if rules_path == path:
                return text
    return ""


def _range_of_differing_bytes(old: bytes, new: bytes) -> tuple[int, int]:
    """Return where the first difference begins, and where the last one ends in the new text."""
    start = _count_equal_first_bytes(old, new)
    same_at_end = _count_equal_first_bytes(old[start:][::-1], new[start:][::-1])
    return start, len(new) - same_at_end


def _count_equal_first_bytes(old: bytes, new: bytes) -> int:
    for position, (old_byte, new_byte) in enumerate(zip(old, new, strict=False)):
        if old_byte != new_byte:
            return position
    return min(len(old), len(new))


def find_first_changed_seq(fact: facts.Fact, folds: Mapping[str, facts.Folded]) -> int | None:
    """Return the first fact shown differently, 0 for system prompt or tools, or None."""
    if isinstance(fact, (facts.SystemSet, facts.RulesSet, facts.ToolsOffered)):
        return 0
    if isinstance(fact, facts.Rewound):
        return max(0, fact.to) + 1
    if isinstance(fact, facts.Folded):
        return _first_seq_in_cover(fact.cover)
    if isinstance(fact, (facts.Excluded, facts.Included)):
        return _first_seq_in_cover(fact.ref)
    if isinstance(fact, (facts.Unfolded, facts.Refolded, facts.DocumentEdited)):
        changed_fold = folds.get(fact.fold)
        if changed_fold is not None:
            return _first_seq_in_cover(changed_fold.cover)
    return None


def _find_edit(fact: facts.Fact, folds: Mapping[str, facts.Folded]) -> ChangePlace | None:
    """Return a person's change: the first fact that it affects, and its description."""
    match fact:
        case facts.Rewound(to=to):
            return _edit_at(max(0, to) + 1, f"to {to}")
        case facts.Forgotten():
            return _edit_at(1, "forgotten")
        case facts.ConversationStarted(forked_from=origin, forked_at=to) if origin:
            return _edit_at(to + 1, f"to {to}")
        case facts.Pinned(ref=ref) | facts.Unpinned(ref=ref):
            first_seq: int | None = _first_seq_in_cover(ref)
        case _:
            first_seq = find_first_changed_seq(fact, folds)
    if first_seq is None:
        return None
    return _edit_at(first_seq, _describe_edit(fact, first_seq))


def _describe_edit(fact: facts.Fact, first_seq: int) -> str:
    """Name the kind of an edit, and the fold or the message that it is about."""
    kind = type(fact).__name__.lower()
    if isinstance(fact, facts.Unfolded | facts.Refolded | facts.DocumentEdited):
        return f"{kind} {fact.fold}"
    return f"{kind} {first_seq}"


def _edit_at(first_seq: int, detail: str) -> ChangePlace:
    return ChangePlace(first_seq, Cause(CauseKind.EDIT, detail))


def _first_seq_in_cover(cover: facts.Cover) -> int:
    if isinstance(cover, facts.Span):
        return max(1, cover.first)
    return max(1, cover.seq)
