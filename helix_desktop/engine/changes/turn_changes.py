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
        if self.last <= self.number:
            return str(self.number)
        return f"{self.number}–{self.last}"

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
        if self.moved_from is None:
            return (self,)
        return self.moved_from, self

    @property
    def path_of_change(self) -> str:
        return self.change.path

    @property
    def change_word(self) -> str:
        """Return "added", "deleted" or "changed"."""
        if self.change.before is None:
            return "added"
        if self.change.after is None:
            return "deleted"
        return "changed"


def mark_renames(files: Sequence[FileChange]) -> list[FileChange]:
    """Mark each deleted file whose content was added elsewhere, and that one. No line
    of them has changed.
    """
    deleted: dict[bytes, FileChange] = {}
    for file in files:
        before = file.change.before
        if before is not None and file.change.after is None:
            deleted[before.content] = file
    marked = {file.path_of_change: file for file in files}
    for file in files:
        after = file.change.after
        is_new = file.change.before is None and after is not None and after.size
        if not is_new or after is None or after.content not in deleted:
            continue
        source = deleted.pop(after.content)
        old = replace(source, added=0, removed=0, renamed=file.place)
        new = replace(file, added=0, removed=0, renamed=source.place, moved_from=old)
        marked[old.path_of_change] = old
        marked[new.path_of_change] = new
    return list(marked.values())


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    """A path that checkpoints leave out. `is_beyond_limits`: for its size or as
    unreadable, not by a rule.
    """

    path: str
    why: str
    is_beyond_limits: bool = False


@dataclass(slots=True)
class _CallOfTurn:
    """A call by which files may change. `turn`: the message of its turn, 0 if there is none."""

    tool: str = ""
    step: int = 0
    turn: int = 0


class _TurnGrouping:
    """Collects turns and their changes, fact by fact."""

    def __init__(self) -> None:
        self.turns: list[TurnOfChanges] = []
        self._calls: dict[str, _CallOfTurn] = {}
        self._steps = 0
        self._messages = 0
        self._is_foreign = False

    def add_fact(self, recorded: facts.Recorded) -> None:
        match recorded.fact:
            case facts.ConversationStarted(agent=agent, origin=origin):
                self._is_foreign = bool(agent or origin.kind)
            case facts.UserSaid(steering=False, parts=parts):
                if not self._is_foreign or not is_added_by_agent(parts):
                    self._begin_turn(recorded.seq, parts)
            case facts.ModelReplied(parts=reply_parts):
                self._add_calls(reply_parts)
            case facts.ToolReturned(child=child) if child and self.turns:
                last = self.turns[-1]
                self.turns[-1] = replace(last, children=(*last.children, child))
            case facts.FilesChanged() as fact if self.turns:
                self._add_change(recorded, fact)

    def _begin_turn(self, seq: int, parts: Sequence[facts.UserPart]) -> None:
        self._messages += 1
        words, _ = split_off_agent_additions(parts)
        title = " ".join(words.split())[:80]
        turn = TurnOfChanges(self._messages, seq, seq, title, (), last=self._messages)
        self.turns.append(turn)

    def _add_calls(self, parts: Sequence[facts.ReplyPart]) -> None:
        self._steps += 1
        turn = 0
        if self.turns:
            turn = self.turns[-1].seq
        for part in parts:
            if isinstance(part, facts.ToolCall):
                self._calls[part.id] = _CallOfTurn(part.name, self._steps, turn)

    def _add_change(self, recorded: facts.Recorded, fact: facts.FilesChanged) -> None:
        call = self._calls.get(fact.call, _CallOfTurn())
        source = ChangeSource(
            recorded.conversation, recorded.seq, recorded.time, fact, call.tool, call.step
        )
        seqs: Sequence[int] = fact.undoes
        if not seqs:
            # After a kill, a call may be recorded in a later turn; a command in the
            # background goes on in it.
            if call.turn and fact.by != "background":
                seqs = (call.turn,)
            else:
                seqs = (self.turns[-1].seq,)
        _add_change_to_turn(self.turns, source, seqs)


def group_changes_by_turn(recorded_facts: Iterable[facts.Recorded]) -> tuple[TurnOfChanges, ...]:
    """Group changes by turn. Sub-agents of turns without changes may have made some."""
    grouping = _TurnGrouping()
    end = 0
    for recorded in recorded_facts:
        grouping.add_fact(recorded)
        end = recorded.seq
    turns = grouping.turns
    ends = [turn.seq - 1 for turn in turns[1:]]
    ends.append(end)
    return tuple(replace(turn, end=last) for turn, last in zip(turns, ends, strict=False))


def _add_change_to_turn(
    turns: list[TurnOfChanges], source: ChangeSource, seqs: Sequence[int]
) -> None:
    """Add a change to the turns with these facts. Those which an undo undoes become one."""
    begin = len(turns) - 1
    while begin and turns[begin].seq > min(seqs):
        begin -= 1
    stop = len(turns)
    while stop > begin + 1 and turns[stop - 1].seq > max(seqs):
        stop -= 1
    changed = turns[begin:stop]
    sources: list[ChangeSource] = []
    children: list[str] = []
    for turn in changed:
        sources += turn.sources
        children += turn.children
    sources.append(source)
    joined = replace(
        changed[0],
        last=changed[-1].last,
        sources=tuple(sources),
        children=tuple(children),
    )
    turns[begin:stop] = [joined]


def without_user_undos(sources: Sequence[ChangeSource]) -> tuple[ChangeSource, ...]:
    return tuple(source for source in sources if source.fact.by != "undo")


def step_with_undos(
    step: ChangeSource, sources: Iterable[ChangeSource]
) -> tuple[ChangeSource, ...]:
    undos = [each for each in sources if each.fact.by == "undo" and step.seq in each.fact.undoes]
    return (step, *undos)


def seqs_to_name_in_undo(
    changed: Iterable[ChangeSource | facts.Recorded], conversation: str
) -> tuple[int, ...]:
    """Return the numbers of these changes. An undo among them is replaced by what it had undone."""
    seqs: set[int] = set()
    for each in changed:
        if not isinstance(each.fact, facts.FilesChanged) or each.conversation != conversation:
            continue
        if each.fact.by == "undo":
            seqs.update(each.fact.undoes)
        else:
            seqs.add(each.seq)
    return tuple(sorted(seqs))


def kept_hunks(recorded_facts: Iterable[facts.Recorded]) -> Mapping[str, frozenset[str]]:
    """Return the hunks that the user keeps, by path. An empty name means the whole file."""
    hunks: dict[str, frozenset[str]] = {}
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.ChangeKept):
            fact = recorded.fact
            hunks[fact.path] = hunks.get(fact.path, frozenset()) | {fact.hunk}
    return hunks


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
