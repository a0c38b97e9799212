"""Groups a conversation's changes to files by turn, for the Changes page and the command line."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import is_added_by_agent, split_off_agent_additions
from helix_desktop.engine.changes.folder_state import PathChange, TreeItem
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass


class UndoOutlook(StrEnum):
    """What an undo would do: restore, nothing (already undone), or conflict with a later change."""

    RESTORE = "restore"
    ALREADY = "already"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class PlannedUndo:
    path: str
    before: TreeItem | None
    after: TreeItem | None
    now: TreeItem | None
    how: UndoOutlook


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """A fact about files. `what`: the tool's name. `step`: the reply that called it."""

    conversation: str
    seq: int
    time: float
    fact: facts.FilesChanged
    what: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class TurnOfChanges:
    """A turn from message `seq` to fact `end`. Turns undone together are one, up to turn `last`."""

    number: int
    seq: int
    end: int
    title: str
    sources: tuple[ChangeSource, ...]
    children: tuple[str, ...] = ()
    last: int = 0

    @property
    def turn_numbers(self) -> str:
        """Return the number, or a range such as 2–4."""
        return f"{self.number}–{self.last}" if self.last > self.number else str(self.number)

    @property
    def first_checkpoint(self) -> Digest:
        return self.sources[0].fact.before


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of one file. `place`: the shown path. `by`: who changed it last.
    `broken`: others changed it, too. `renamed`: the place where the same content is
    now, or was before; then `moved_from` is the deleted file.
    """

    change: PathChange
    place: str
    added: int = 0
    removed: int = 0
    by: str = ""
    step: int = 0
    broken: bool = False
    sources: tuple[ChangeSource, ...] = ()
    renamed: str = ""
    moved_from: "FileChange | None" = None

    @property
    def both_halves(self) -> "tuple[FileChange, ...]":
        """Return the change, for a renamed file after the deletion under its old name."""
        return (self.moved_from, self) if self.moved_from is not None else (self,)

    @property
    def path_of_change(self) -> str:
        return self.change.path

    @property
    def change_word(self) -> str:
        """Return "added", "deleted" or "changed"."""
        if self.change.before is None:
            return "added"
        return "deleted" if self.change.after is None else "changed"


def mark_renames(files: Sequence[FileChange]) -> list[FileChange]:
    """Mark each deleted file whose content was added elsewhere, and that one. No line
    of them has changed.
    """
    gone = {
        item.content: file
        for file in files
        if (item := file.change.before) and file.change.after is None
    }
    found = {file.path_of_change: file for file in files}
    for file in files:
        item = file.change.after if file.change.before is None else None
        if item is not None and item.size and (old := gone.pop(item.content, None)) is not None:
            old = replace(old, added=0, removed=0, renamed=file.place)
            new = replace(file, added=0, removed=0, renamed=old.place, moved_from=old)
            found |= {old.path_of_change: old, file.path_of_change: new}
    return [*found.values()]


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    """A path that checkpoints leave out. `is_beyond_limits`: for its size or as
    unreadable, not by a rule.
    """

    path: str
    why: str
    is_beyond_limits: bool = False


def group_changes_by_turn(recorded_facts: Iterable[facts.Recorded]) -> tuple[TurnOfChanges, ...]:
    """Group changes by turn. Sub-agents of turns without changes may have made some."""
    found: list[TurnOfChanges] = []
    names: dict[
        str, tuple[str, int, int]
    ] = {}  # By call: the tool, the step, and the message of its turn.
    steps, said, end, is_foreign = 0, 0, 0, False
    for recorded in recorded_facts:
        match recorded.fact:
            case facts.ConversationStarted(agent=agent, origin=origin):
                is_foreign = bool(agent or origin.kind)
            case facts.UserSaid(steering=False, parts=parts) if (
                not is_foreign or not is_added_by_agent(parts)
            ):
                said += 1
                words, _ = split_off_agent_additions(parts)
                title = " ".join(words.split())[:80]
                found.append(TurnOfChanges(said, recorded.seq, recorded.seq, title, (), last=said))
            case facts.ModelReplied(parts=parts):
                steps += 1
                calls, turn = (
                    (part for part in parts if isinstance(part, facts.ToolCall)),
                    found[-1].seq if found else 0,
                )
                names.update({part.id: (part.name, steps, turn) for part in calls})
            case facts.ToolReturned(child=child) if child and found:
                found[-1] = replace(found[-1], children=(*found[-1].children, child))
            case facts.FilesChanged() as fact if found:
                what, step, turn = names.get(fact.call, ("", 0, 0))
                # After a kill, a call may be recorded in a later turn; a command in the
                # background goes on in it.
                seqs = fact.undoes or (
                    (turn,) if turn and fact.by != "background" else (found[-1].seq,)
                )
                _add_change_to_turn(
                    found,
                    ChangeSource(
                        recorded.conversation, recorded.seq, recorded.time, fact, what, step
                    ),
                    seqs,
                )
        end = recorded.seq
    ends = (*(turn.seq - 1 for turn in found[1:]), end)
    return tuple(replace(turn, end=seq) for turn, seq in zip(found, ends, strict=False))


def _add_change_to_turn(
    found: list[TurnOfChanges], source: ChangeSource, seqs: Sequence[int]
) -> None:
    """Add a change to the turns with these facts. Those which an undo undoes become one."""
    begin, stop = len(found) - 1, len(found)
    while begin and found[begin].seq > min(seqs):
        begin -= 1
    while stop > begin + 1 and found[stop - 1].seq > max(seqs):
        stop -= 1
    these = found[begin:stop]
    sources = (*(each for turn in these for each in turn.sources), source)
    children = tuple(child for turn in these for child in turn.children)
    found[begin:stop] = [replace(these[0], last=these[-1].last, sources=sources, children=children)]


def without_user_undos(sources: Sequence[ChangeSource]) -> tuple[ChangeSource, ...]:
    return tuple(source for source in sources if source.fact.by != "undo")


def step_with_undos(
    step: ChangeSource, sources: Iterable[ChangeSource]
) -> tuple[ChangeSource, ...]:
    return (
        step,
        *(each for each in sources if each.fact.by == "undo" and step.seq in each.fact.undoes),
    )


def seqs_to_name_in_undo(
    changed: Iterable[ChangeSource | facts.Recorded], conversation: str
) -> tuple[int, ...]:
    """Return the numbers of these changes. An undo among them is replaced by what it had undone."""
    found: set[int] = set()
    for each in changed:
        if isinstance(each.fact, facts.FilesChanged) and each.conversation == conversation:
            found.update(each.fact.undoes if each.fact.by == "undo" else (each.seq,))
    return tuple(sorted(found))


def kept_hunks(recorded_facts: Iterable[facts.Recorded]) -> Mapping[str, frozenset[str]]:
    """Return the hunks that the user keeps, by path. An empty name means the whole file."""
    found: dict[str, frozenset[str]] = {}
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.ChangeKept):
            fact = recorded.fact
            found[fact.path] = found.get(fact.path, frozenset()) | {fact.hunk}
    return found


def format_line_comment(place: str, line: int, text: str, words: str) -> str:
    return f"About {place}, line {line}:\n\n    {text.strip()}\n\n{words.strip()}"


def printable_path(name: str) -> str:
    """Return a path for JSON and terminals. Bytes that are not text become escapes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return json.dumps(
            name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        )[1:-1]
    return name
