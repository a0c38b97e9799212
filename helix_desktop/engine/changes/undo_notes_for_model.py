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

# `FilesChanged.by` of the user's undo and redo, and `UserSaid.by` of the note on them.
UNDO = "undo"
MOST_NAMED = 12  # Of more files, the others are only counted.
UNDID = "The user undid your changes to "
UNDID_PARTLY = "The user undid a part of your changes to "
LEFT = "The conversation was rewound, but your later changes to "
_DONE = re.compile("^(?:created|changed|deleted) ")
# What is at each path. None stands for nothing.
ItemsByPath = dict[str, TreeItem | None]


@dataclass(slots=True)
class _LeftoverChange:
    """What is at a path that a change outside the model's branch has changed."""

    before: TreeItem | None
    now: TreeItem | None
    was_told: bool = False  # Whether the model was told of it at all.
    when_told: TreeItem | None = None  # What was there then.

    def is_news(self) -> bool:
        """Whether something is left of the change that the model was not told yet."""
        if self.now == self.before:
            return False
        return not self.was_told or self.when_told != self.now


@dataclass(slots=True)
class UndoneFiles:
    """What the agent changed, what the user undid of it, and what the model knows of both.

    A leftover is a change that a rewind took out of the conversation, but not out of the folder.
    """

    before_agent: ItemsByPath = field(default_factory=dict)
    after_agent: ItemsByPath = field(default_factory=dict)
    known_to_model: ItemsByPath = field(default_factory=dict)  # What the model was told is there.
    after_undo: ItemsByPath = field(default_factory=dict)  # Only of files with an undo or a redo.

    leftovers: dict[str, _LeftoverChange] = field(default_factory=dict)  # By path.

    names: dict[str, str] = field(default_factory=dict)  # By path, as the user knows them.
    last_seq: int = 0  # The number of the last undo.

    def add_agent_change(self, change: PathChange) -> None:
        """Note what the agent did to a file. The model knows it, since it did it itself."""
        path = change.path
        # What the agent does to a file after an undo or a rewind begins anew.
        if path in self.after_undo:
            del self.before_agent[path]
            del self.after_undo[path]
        self.leftovers.pop(path, None)

        self.before_agent.setdefault(path, change.before)
        self.after_agent[path] = change.after
        self.known_to_model[path] = change.after

    def add_leftover(self, change: PathChange) -> None:
        leftover = self.leftovers.setdefault(
            change.path, _LeftoverChange(change.before, change.after)
        )
        leftover.now = change.after

    def add_undo(self, change: PathChange, *, is_shown: bool) -> None:
        """Note what the user's undo did to a file, unless the model knows nothing of the change.

        `is_shown`: the undo is in the branch of the conversation that the model is shown.
        """
        path = change.path
        is_known_to_model = is_shown
        leftover = self.leftovers.get(path)
        if leftover is not None:
            leftover.now = change.after
            is_known_to_model = leftover.was_told
        if not is_known_to_model and path not in self.after_agent:
            return
        # What a sub-agent changed is known only from its undo.
        self.before_agent.setdefault(path, change.after)
        self.after_agent.setdefault(path, change.before)
        self.known_to_model.setdefault(path, change.before)
        self.after_undo[path] = change.after

    def is_undone(self, written: str) -> bool:
        """Whether nothing is left of what an agent did to a file: its path, or words
        such as "created" and its path.
        """
        if not self.after_undo:
            return False
        path = self._find_path_by_name_at_end(_DONE.sub("", written))
        if path not in self.after_undo:
            return False
        item_before_agent = self.before_agent[path]
        is_as_before = self.after_undo[path] == item_before_agent
        did_agent_change_it = item_before_agent != self.after_agent[path]
        return is_as_before and did_agent_change_it

    def _find_path_by_name_at_end(self, written: str) -> str:
        """Return the path of the file that a text names, or nothing. An absolute path ends
        in the name that the user knows.
        """
        path_by_name = {name: path for path, name in self.names.items()}
        parts = written.split("/")
        for start in range(len(parts)):
            name = "/".join(parts[start:])
            if name in path_by_name:
                return path_by_name[name]
        return ""

    def describe_undos(self, known: ItemsByPath) -> str:
        """Return one line on all files that an undo or redo left otherwise than
        `known`, or an empty string.
        """
        undone: list[str] = []
        partly_undone: list[str] = []
        redone: list[str] = []
        for path, item in self.after_undo.items():
            if item == known[path]:
                continue
            if item == self.after_agent[path]:
                redone.append(path)
            elif item == self.before_agent[path]:
                undone.append(path)
            else:
                partly_undone.append(path)
        sentences = (
            _format_sentence(UNDID, self._quoted_names(undone)),
            _format_sentence(UNDID_PARTLY, self._quoted_names(partly_undone)),
            _format_sentence("The user redid your changes to ", self._quoted_names(redone)),
        )
        return " ".join(filter(None, sentences))

    def describe_news(self) -> str:
        """Return what the model was not told yet of undos and of changes that a rewind has left."""
        about_undos = self.describe_undos(self.known_to_model)
        new_leftovers = [path for path, leftover in self.leftovers.items() if leftover.is_news()]
        leftover_names = self._quoted_names(new_leftovers)
        about_leftovers = _format_sentence(LEFT, leftover_names, " are still there.")
        return " ".join(filter(None, (about_undos, about_leftovers)))

    def note_that_model_was_told(self) -> None:
        """Note that the model was told of everything until now."""
        self.known_to_model.update(self.after_undo)
        for leftover in self.leftovers.values():
            leftover.was_told = True
            leftover.when_told = leftover.now

    def _quoted_names(self, paths: Iterable[str]) -> list[str]:
        """Return the names of files for a sentence, with a note on those that are deleted."""
        present_items = {path: leftover.now for path, leftover in self.leftovers.items()}
        present_items.update(self.after_undo)
        names = []
        for path in paths:
            name = quote_file_name(self.names[path])
            if path in present_items and present_items[path] is None:
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
    """Read what is undone of the agent's changes, from all facts about files in their order.

    A rewind takes messages out of the conversation, but neither the changes that they made to
    files nor the undos of them. So the facts that the model is no longer shown count, too.
    """
    files = UndoneFiles(last_seq=state.last_undo)
    if not state.last_undo and not state.record.rewinds:
        return files
    digests = set()
    for recorded in state.facts:
        if isinstance(recorded.fact, FilesChanged):
            digests.add(recorded.fact.difference.digest)
    contents = await cache.read_contents(digests)

    shown_seqs = {recorded.seq for recorded in state.facts_on_path()}
    for recorded in state.facts:
        is_shown = recorded.seq in shown_seqs
        match recorded.fact:
            case UserSaid(by=by) if by == UNDO and is_shown:
                files.note_that_model_was_told()
            case FilesChanged() as fact if fact.difference.digest in contents:
                content = contents[fact.difference.digest]
                named_changes = name_changes_of_fact(fact, content, files.names)
                for change in named_changes:
                    _add_change(files, change, by=fact.by, is_shown=is_shown)
    return files


def _add_change(files: UndoneFiles, change: PathChange, *, by: str, is_shown: bool) -> None:
    if by == UNDO:
        files.add_undo(change, is_shown=is_shown)
    elif is_shown:
        files.add_agent_change(change)
    else:
        files.add_leftover(change)


def name_changes_of_fact(
    fact: FilesChanged, content: bytes, names: dict[str, str]
) -> list[PathChange]:
    """Return the changes of a fact. What the user calls the path of each is written into `names`.

    `content` is the stored entry with the changes, which the fact refers to.
    """
    changes = without_folders(decode_difference(content))
    for change in changes:
        # The fact names only some of the changed files. A path begins with the number of its root.
        path_below_root = change.path.partition("/")[2]
        names.setdefault(change.path, path_below_root or ".")
    for change, name in zip(changes, fact.names, strict=False):
        names[change.path] = name
    return changes
