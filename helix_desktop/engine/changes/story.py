"""What a conversation did to files, turn by turn, as the page of changes and the command line tell it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from helix_desktop.engine.changes.tree import Change, Item
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    ChangeKept,
    FilesChanged,
    ModelReplied,
    Recorded,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.values import dataclass


class How(StrEnum):
    """What taking a change back comes to: it can be done, it is so already, or somebody else has changed it since."""

    RESTORE = "restore"
    ALREADY = "already"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Planned:
    """One path: how it was `before` and `after` the change, and what stands there `now`."""

    path: str
    before: Item | None
    after: Item | None
    now: Item | None
    how: How


@dataclass(frozen=True, slots=True)
class Source:
    """One fact about files. `what`: the tool's name; `step`: the number of the reply that called it."""

    conversation: str
    seq: int
    time: float
    fact: FilesChanged
    what: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class TurnOfChanges:
    """A turn that changed files, with its sub-agents' changes. `seq`: of the message it answers; `end`: its last fact."""

    number: int
    seq: int
    end: int
    title: str
    sources: tuple[Source, ...]
    children: tuple[str, ...] = ()

    @property
    def before(self) -> Digest:
        """The checkpoint it began with."""
        return self.sources[0].fact.before


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file of a list of changes. `place`: its name as people know it; `by`: what changed it last; `broken`: somebody else
    changed it in between.
    """

    change: Change
    place: str
    added: int = 0
    removed: int = 0
    by: str = ""
    step: int = 0
    broken: bool = False

    @property
    def path(self) -> str:
        return self.change.path

    @property
    def sort(self) -> str:
        """added, deleted or changed."""
        if self.change.before is None:
            return "added"
        return "deleted" if self.change.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Left:
    """What is not covered, and why."""

    place: str
    why: str
    size: int = 0


def turns(facts: Iterable[Recorded]) -> tuple[TurnOfChanges, ...]:
    """Every turn with what it changed, also those that changed nothing: the sub-agents they started may have."""
    found: list[TurnOfChanges] = []
    ends: list[int] = []
    names: dict[str, tuple[str, int]] = {}
    steps = 0
    for recorded in facts:
        match recorded.fact:
            case UserSaid(steering=False) as fact:
                found.append(TurnOfChanges(len(found) + 1, recorded.seq, recorded.seq, _title(fact), ()))
                ends.append(recorded.seq)
            case ModelReplied(parts=parts):
                steps += 1
                names.update({part.id: (part.name, steps) for part in parts if isinstance(part, ToolCall)})
            case ToolReturned(child=child) if child and found:
                found[-1] = replace(found[-1], children=(*found[-1].children, child))
            case FilesChanged() as fact if found:
                what, step = names.get(fact.call, ("", 0))
                source = Source(recorded.conversation, recorded.seq, recorded.time, fact, what, step)
                found[-1] = replace(found[-1], sources=(*found[-1].sources, source))
        if found:
            ends[-1] = recorded.seq
    return tuple(replace(turn, end=end) for turn, end in zip(found, ends, strict=True))


def own(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Without what the user did: undo and redo."""
    return tuple(source for source in sources if source.fact.by != "undo")


def kept(facts: Iterable[Recorded]) -> Mapping[str, frozenset[str]]:
    """By path the hunks that the user keeps; an empty name stands for the whole file."""
    found: dict[str, frozenset[str]] = {}
    for recorded in facts:
        if isinstance(recorded.fact, ChangeKept):
            fact = recorded.fact
            found[fact.path] = found.get(fact.path, frozenset()) | {fact.hunk}
    return found


def comment(place: str, line: int, text: str, words: str) -> str:
    """What the agent is told about a line."""
    return f"About {place}, line {line}:\n\n    {text.strip()}\n\n{words.strip()}"


def written(name: str) -> str:
    """A path for JSON and terminals: bytes that are no text are shown as escapes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return json.dumps(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))[1:-1]
    return name


def _title(said: UserSaid) -> str:
    words = " ".join(str(getattr(part, "text", "")) for part in said.parts).split()
    return " ".join(words)[:80]
