"""A history as a tree: which rows belong to which branch of the conversation.

The first branch never loses a row, so a file that has grown has the same branches or more. A row
whose parent already has a successor begins a branch, unless it is a late part of the same step.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.history_rows import HistoryMessages, ReadingReport
from helix_desktop.histories.recorded_session import RecordedSession

# No more branches are made, because each is stored with all the rows that it shares
# with others.
MOST_BRANCHES = 500
ROOT = "\0root"  # The parent of a row without one.


@dataclass(frozen=True, slots=True)
class HistoryNode:
    """`begins`: whether it can begin a branch, as a person typed it. `step`: equal in a
    reply's rows.
    """

    id: str
    parent: str
    begins: bool = False
    step: str = ""


@dataclass(slots=True)
class HistoryBranch:
    """`rows`: the positions of its own rows. `of`: its parent branch. `at`: after which
    row of that it begins.
    """

    rows: list[int] = field(default_factory=list)
    of: int = -1
    at: int = -1


@dataclass(slots=True)
class HistoryTree:
    """Builds branches from rows in order. An unknown parent is replaced by the preceding row."""

    branches: list[HistoryBranch] = field(default_factory=lambda: [HistoryBranch()])
    nodes: dict[int, HistoryNode] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # By row: its branch and its position there.
    current: int = 0

    def add_node(self, index: int, node: HistoryNode) -> int:
        """Add the next row. Return the number of its branch."""
        here = (self.current, len(self.branches[self.current].rows) - 1)
        branch, at = (0, -1) if node.parent == ROOT else self.places.get(node.parent, here)
        if node.begins and self._begins_new_branch(branch, at, node):
            self.branches.append(HistoryBranch(of=branch, at=at))
            branch = len(self.branches) - 1
        rows = self.branches[branch].rows
        rows.append(index)
        self.nodes[index] = node
        if node.id:
            self.places[node.id] = (branch, len(rows) - 1)
        self.current = branch
        return branch

    def skip_row(self, name: str, parent: str) -> None:
        """Leave out a row. Its children follow its parent."""
        if name and parent in self.places:
            self.places[name] = self.places[parent]

    def redirect_followers_to_newest_row(self, ids: Sequence[str]) -> None:
        """Attach later children of these rows to the newest row, since a compaction kept them."""
        for name in ids:
            self.places[name] = (self.current, len(self.branches[self.current].rows) - 1)

    def _begins_new_branch(self, branch: int, at: int, node: HistoryNode) -> bool:
        if len(self.branches) >= MOST_BRANCHES:
            return False
        rows = self.branches[branch].rows
        step = ""
        if 0 <= at < len(rows):
            step = self.nodes[rows[at]].step
        for index in rows[at + 1 :]:
            later = self.nodes[index]
            if later.begins or (later.step and later.step != step):
                return True
        return False

    def rows_of_branch(self, branch: int) -> list[int]:
        """Return all rows of a branch, including shared ones."""
        return self.rows_shared_with_parent(branch) + self.branches[branch].rows

    def rows_shared_with_parent(self, branch: int) -> list[int]:
        parent = self.branches[branch].of
        if parent < 0:
            return []
        end = self.branches[branch].at + 1
        return self.rows_shared_with_parent(parent) + self.branches[parent].rows[:end]


def build_branch_sessions(
    tree: HistoryTree,
    template: RecordedSession,
    name_of_row: Callable[[int], str],
    read_messages: Callable[[Sequence[int], ReadingReport], HistoryMessages],
    report: ReadingReport,
) -> list[RecordedSession]:
    """Build a session for each branch, named by its first own row, with the fields of
    `template`.
    """
    sessions: list[RecordedSession] = []
    for number, branch in enumerate(tree.branches):
        # What cannot be read in a branch's shared rows was reported with its parent.
        own_report = ReadingReport() if number else report
        reader = read_messages(tree.rows_of_branch(number), own_report)
        session = replace(
            template, messages=tuple(reader.messages), compactions=tuple(reader.compactions)
        )
        if number:
            shared_rows = tree.rows_shared_with_parent(number)
            shared_count = len(read_messages(shared_rows, ReadingReport()).messages)
            first_own_row = name_of_row(branch.rows[0]) if branch.rows else ""
            forked_from = sessions[branch.of].session if shared_count else ""
            session = replace(
                session,
                name=f"{template.name}#{number + 1}",
                session=f"{template.session}#{first_own_row}",
                forked_from=forked_from,
                forked_at=shared_count,
            )
        sessions.append(session)
    return sessions
