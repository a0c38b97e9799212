"""Finds what the user has undone of the agent's changes, and what a rewind has left,
which the model has to be told.

It is computed from the conversation's facts. Only a difference says what an undo did to
a file: the same kind of fact records an undo, a part of one, and a redo.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import field

from helix_desktop.engine.changes.folder_state import PathChange, TreeItem, decode_difference
from helix_desktop.engine.changes.folder_state import (
    without_folders_beside_files as without_folders,
)
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.facts import FilesChanged, UserSaid
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

UNDO = (
    "undo"  # `FilesChanged.by` of the user's undo and redo, and `UserSaid.by` of the note on them.
)
MOST_NAMED = 12
UNDID = "The user undid your changes to "
UNDID_PARTLY = "The user undid a part of your changes to "
LEFT = "The conversation was rewound, but your later changes to "
_DONE = re.compile("^(?:created|changed|deleted) ")
Items = dict[str, TreeItem | None]


@dataclass(slots=True)
class UndoneFiles:
    """By path, what was there: before the agent's changes, after them, as the model was
    told, and after an undo. Of changes that a rewind left behind: what was there before
    them, what is there now, and what of it was told.
    """

    before: Items = field(default_factory=dict)
    made: Items = field(default_factory=dict)
    told: Items = field(default_factory=dict)
    restored: Items = field(default_factory=dict)
    before_left: Items = field(default_factory=dict)
    left: Items = field(default_factory=dict)
    told_left: Items = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    last_seq: int = 0  # The number of the last undo.

    def add_agent_change(self, change: PathChange) -> None:
        if change.path in self.restored:
            del self.before[change.path], self.restored[change.path]
        for items in (self.before_left, self.left, self.told_left):
            items.pop(change.path, None)
        self.before.setdefault(change.path, change.before)
        self.made[change.path] = self.told[change.path] = change.after

    def add_left_change(self, change: PathChange) -> None:
        self.before_left.setdefault(change.path, change.before)
        self.left[change.path] = change.after

    def add_undo(self, change: PathChange, *, is_shown: bool) -> None:
        """Add an undo, unless the model knows nothing of the change."""
        if change.path in self.left:
            self.left[change.path] = change.after
            is_shown = change.path in self.told_left
        if not is_shown and change.path not in self.made:
            return
        # What a sub-agent changed is known only from its undo.
        self.before.setdefault(change.path, change.after)
        self.made.setdefault(change.path, change.before)
        self.told.setdefault(change.path, change.before)
        self.restored[change.path] = change.after

    def is_undone(self, written: str) -> bool:
        """Whether nothing is left of what an agent did to a file: its path, or words
        such as "created" and its path.
        """
        if not self.restored:
            return False
        path = self._path_with_name_at_end(_DONE.sub("", written))
        if path not in self.restored:
            return False
        is_as_before = self.restored[path] == self.before[path]
        return is_as_before and self.before[path] != self.made[path]

    def _path_with_name_at_end(self, written: str) -> str:
        """Return the path of the file that a text names, or nothing. An absolute path ends
        in the name that the user knows.
        """
        path_of_name = {name: path for path, name in self.names.items()}
        parts = written.split("/")
        for start in range(len(parts)):
            name = "/".join(parts[start:])
            if name in path_of_name:
                return path_of_name[name]
        return ""

    def describe_undos(self, known: Items) -> str:
        """Return one line on all files that an undo or redo left otherwise than
        `known`, or an empty string.
        """
        undone: list[str] = []
        partly_undone: list[str] = []
        redone: list[str] = []
        for path, item in self.restored.items():
            if item == known[path]:
                continue
            if item == self.made[path]:
                redone.append(path)
            elif item == self.before[path]:
                undone.append(path)
            else:
                partly_undone.append(path)
        sentences = (
            _format_sentence(UNDID, self._named(undone)),
            _format_sentence(UNDID_PARTLY, self._named(partly_undone)),
            _format_sentence("The user redid your changes to ", self._named(redone)),
        )
        return " ".join(filter(None, sentences))

    def describe_news(self) -> str:
        """Return what the model was not told yet of undos and of changes that a rewind has left."""
        new = []
        for path, item in self.left.items():
            is_there = item != self.before_left[path]
            is_told = path in self.told_left and self.told_left[path] == item
            if is_there and not is_told:
                new.append(path)
        left = _format_sentence(LEFT, self._named(new), " are still there.")
        return " ".join(filter(None, (self.describe_undos(self.told), left)))

    def _named(self, paths: Iterable[str]) -> list[str]:
        items = {**self.left, **self.restored}
        names = []
        for path in paths:
            name = quote_file_name(self.names[path])
            if path in items and items[path] is None:
                name += " (deleted)"
            names.append(name)
        return names


def quote_file_name(name: str) -> str:
    """Quote a name so that nothing in it can pass for words of the program."""
    return json.dumps(printable_path(name), ensure_ascii=not name.isprintable())


def _format_sentence(words: str, names: list[str], end: str = ".") -> str:
    if not names:
        return ""
    listed = names[:MOST_NAMED]
    if len(names) > MOST_NAMED:
        listed.append(f"{len(names) - MOST_NAMED:,} more")
    return f"{words}{', '.join(listed)}{end}"


async def read_undone_files(state: ConversationState, cache: ContentCache) -> UndoneFiles:
    """Read what is undone in the branch that the view shows, also by undos that a
    rewind left behind, and what one left.
    """
    undone = UndoneFiles(last_seq=state.last_undo)
    if not state.last_undo and not state.record.rewinds:
        return undone
    shown = {recorded.seq for recorded in state.facts_on_path()}
    digests = {
        recorded.fact.difference.digest
        for recorded in state.facts
        if isinstance(recorded.fact, FilesChanged)
    }
    contents = await cache.read_contents(digests)
    for recorded in state.facts:
        is_shown = recorded.seq in shown
        match recorded.fact:
            case UserSaid(by=by) if by == UNDO and is_shown:
                undone.told.update(undone.restored)
                undone.told_left.update(undone.left)
            case FilesChanged() as fact if fact.difference.digest in contents:
                content = contents[fact.difference.digest]
                for change in name_changes_of_fact(fact, content, undone.names):
                    _add_change(undone, change, by=fact.by, is_shown=is_shown)
    return undone


def _add_change(undone: UndoneFiles, change: PathChange, *, by: str, is_shown: bool) -> None:
    if by == UNDO:
        undone.add_undo(change, is_shown=is_shown)
    elif is_shown:
        undone.add_agent_change(change)
    else:
        undone.add_left_change(change)


def name_changes_of_fact(
    fact: FilesChanged, content: bytes, names: dict[str, str]
) -> list[PathChange]:
    """Return the changes, and add the names that the user knows these paths by."""
    changes = without_folders(decode_difference(content))
    for change in changes:
        names.setdefault(change.path, change.path.partition("/")[2] or ".")
    for change, name in zip(changes, fact.names, strict=False):
        names[change.path] = name
    return changes
