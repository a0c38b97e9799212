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

LONGEST_TITLE = 80  # A turn is called by so many characters of the user's message.


class UndoOutlook(StrEnum):
    """What an undo would do: restore, nothing (already undone), or conflict with a later change."""

    RESTORE = "restore"
    ALREADY = "already"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class PlannedUndo:
    """What an undo of a change would do to a path. `now`: what is there at present."""

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
    """Mark each deleted file whose content was added under another name, and the added one.

    They are one file that was renamed, so no line of it counts as added or removed.
    """
    deleted_by_content: dict[bytes, FileChange] = {}
    for file in files:
        before = file.change.before
        if before is not None and file.change.after is None:
            deleted_by_content[before.content] = file
    marked_files = {file.path_of_change: file for file in files}
    for file in files:
        after = file.change.after
        if file.change.before is not None or after is None:
            continue
        # All empty files have the same content, so an empty one says nothing of a rename.
        if not after.size or after.content not in deleted_by_content:
            continue
        deleted_file = deleted_by_content.pop(after.content)
        old = replace(deleted_file, added=0, removed=0, renamed=file.place)
        new = replace(file, added=0, removed=0, renamed=deleted_file.place, moved_from=old)
        marked_files[old.path_of_change] = old
        marked_files[new.path_of_change] = new
    return list(marked_files.values())


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
        self._calls_by_id: dict[str, _CallOfTurn] = {}
        self._step_count = 0
        self._message_count = 0
        self._is_foreign = False
        self._is_run_elsewhere = False  # An agent of another program works here now.

    def add_fact(self, recorded: facts.Recorded) -> None:
        """Follow the conversation by one fact. Only some kinds say something of turns and files."""
        match recorded.fact:
            case facts.ConversationStarted(agent=agent, origin=origin, acp_agent=acp_agent):
                self._is_foreign = bool(agent or origin.kind)
                self._is_run_elsewhere = bool(agent or acp_agent)
            case facts.UserSaid(steering=False, parts=parts):
                if not self._is_foreign or not is_added_by_agent(parts):
                    self._begin_turn(recorded.seq, parts)
            case facts.ModelReplied(parts=reply_parts):
                self._add_calls(reply_parts)
            case facts.ToolReturned(child=child) if child and self.turns:
                last_turn = self.turns[-1]
                self.turns[-1] = replace(last_turn, children=last_turn.children + (child,))
            case facts.FilesChanged() as fact if self.turns:
                self._add_change(recorded, fact)

    def _begin_turn(self, seq: int, parts: Sequence[facts.UserPart]) -> None:
        self._message_count += 1
        number = self._message_count
        words, _ = split_off_agent_additions(parts)
        title = " ".join(words.split())[:LONGEST_TITLE]
        # Where the turn ends is known only when the next one begins.
        self.turns.append(TurnOfChanges(number, seq, seq, title, sources=(), last=number))

    def _add_calls(self, parts: Sequence[facts.ReplyPart]) -> None:
        self._step_count += 1
        seq_of_turn = 0
        if self.turns:
            seq_of_turn = self.turns[-1].seq
        for part in parts:
            if isinstance(part, facts.ToolCall):
                call = _CallOfTurn(part.name, self._step_count, seq_of_turn)
                self._calls_by_id[part.id] = call

    def _add_change(self, recorded: facts.Recorded, fact: facts.FilesChanged) -> None:
        """Add a change to the turn that made it, or an undo to the turns that it undoes."""
        call = self._calls_by_id.get(fact.call, _CallOfTurn())
        what = call.tool
        if not what and self._is_run_elsewhere and fact.by == "command":
            what = "agent"  # Its program wrote the files itself, by a command or otherwise.
        source = ChangeSource(
            recorded.conversation, recorded.seq, recorded.time, fact, what, call.step
        )
        # After a kill, a call may be recorded in a later turn; a command in the
        # background goes on in it.
        is_of_call = bool(call.turn) and fact.by != "background"
        if fact.undoes:
            seqs: Sequence[int] = fact.undoes
        elif is_of_call:
            seqs = (call.turn,)
        else:
            seqs = (self.turns[-1].seq,)
        self._add_change_to_turns(source, first_seq=min(seqs), last_seq=max(seqs))

    def _add_change_to_turns(self, source: ChangeSource, *, first_seq: int, last_seq: int) -> None:
        """Add a change to the turn that contains these facts.

        An undo may name facts of several turns. These turns and those between them become one,
        because its change can't be divided among them.
        """
        first_index = self._index_of_turn_with(first_seq)
        last_index = self._index_of_turn_with(last_seq)
        named_turns = self.turns[first_index : last_index + 1]
        self.turns[first_index : last_index + 1] = [_join_turns(named_turns, source)]

    def _index_of_turn_with(self, seq: int) -> int:
        """Return the place of the turn that contains a fact, or 0 for a fact before all turns."""
        # Turns are in the order of their first facts. An undo is mostly of the last ones.
        for index in reversed(range(len(self.turns))):
            if self.turns[index].seq <= seq:
                return index
        return 0


def _join_turns(turns: Sequence[TurnOfChanges], source: ChangeSource) -> TurnOfChanges:
    """Return one turn with the changes of all of these, and one more change."""
    sources: list[ChangeSource] = []
    children: list[str] = []
    for turn in turns:
        sources += turn.sources
        children += turn.children
    sources.append(source)
    return replace(turns[0], last=turns[-1].last, sources=tuple(sources), children=tuple(children))


def group_changes_by_turn(recorded_facts: Iterable[facts.Recorded]) -> tuple[TurnOfChanges, ...]:
    """Group changes by turn. Sub-agents of turns without changes may have made some."""
    grouping = _TurnGrouping()
    last_seq = 0
    for recorded in recorded_facts:
        grouping.add_fact(recorded)
        last_seq = recorded.seq

    # A turn ends before the next one begins, and the last one with the last fact.
    turns_with_ends = []
    end = last_seq
    for turn in reversed(grouping.turns):
        turns_with_ends.append(replace(turn, end=end))
        end = turn.seq - 1
    turns_with_ends.reverse()
    return tuple(turns_with_ends)


def sort_as_they_happened(sources: Iterable[ChangeSource]) -> list[ChangeSource]:
    """Return changes of one or several turns in the order in which they were made. An undo stands
    in the turn that it undoes, although later turns had made changes before it.
    """
    return sorted(sources, key=lambda source: (source.time, source.seq))


def without_user_undos(sources: Sequence[ChangeSource]) -> tuple[ChangeSource, ...]:
    return tuple(source for source in sources if source.fact.by != "undo")


def step_with_undos(
    step: ChangeSource, sources: Iterable[ChangeSource]
) -> tuple[ChangeSource, ...]:
    """Return a change, followed by the user's undos of it."""
    changes = [step]
    for source in sources:
        if source.fact.by == "undo" and step.seq in source.fact.undoes:
            changes.append(source)
    return tuple(changes)


def seqs_to_name_in_undo(
    changes: Iterable[ChangeSource | facts.Recorded], conversation: str
) -> tuple[int, ...]:
    """Return the numbers of these changes. An undo among them is replaced by what it had undone."""
    seqs: set[int] = set()
    for change in changes:
        fact = change.fact
        if not isinstance(fact, facts.FilesChanged) or change.conversation != conversation:
            continue
        if fact.by == "undo":
            seqs.update(fact.undoes)
        else:
            seqs.add(change.seq)
    return tuple(sorted(seqs))


def kept_hunks(recorded_facts: Iterable[facts.Recorded]) -> Mapping[str, frozenset[str]]:
    """Return the hunks that the user keeps, by path. An empty name means the whole file."""
    hunks_by_path: dict[str, frozenset[str]] = {}
    for recorded in recorded_facts:
        fact = recorded.fact
        if isinstance(fact, facts.ChangeKept):
            earlier_hunks = hunks_by_path.get(fact.path, frozenset())
            hunks_by_path[fact.path] = earlier_hunks | {fact.hunk}
    return hunks_by_path


def format_line_comment(place: str, line: int, text: str, words: str) -> str:
    return f"About {place}, line {line}:\n\n    {text.strip()}\n\n{words.strip()}"


def printable_path(name: str) -> str:
    """Return a path for JSON and terminals. Bytes that are not text become escapes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raw_name = name.encode("utf-8", "surrogateescape")
        escaped_name = raw_name.decode("utf-8", "backslashreplace")
        # JSON escapes what a terminal would act on. Its quotation marks are not part of the path.
        return json.dumps(escaped_name)[1:-1]
    return name
