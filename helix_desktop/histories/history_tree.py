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


@dataclass(frozen=True, slots=True)
class RowLocation:
    """The number of a branch, and the index of one of its own rows, or -1 for the place before
    the first one.
    """

    branch: int
    row_index: int


@dataclass(slots=True)
class HistoryBranch:
    """`rows`: the positions of its own rows. `parent`: the number of the branch that it forks, or
    -1 for the first one. `after_row`: the index of the parent's row behind which it begins.
    """

    rows: list[int] = field(default_factory=list)
    parent: int = -1
    after_row: int = -1


@dataclass(slots=True)
class HistoryTree:
    """Builds branches from rows in order. An unknown parent is replaced by the preceding row."""

    branches: list[HistoryBranch] = field(default_factory=lambda: [HistoryBranch()])
    nodes: dict[int, HistoryNode] = field(default_factory=dict)
    location_by_row_id: dict[str, RowLocation] = field(default_factory=dict)
    current_branch: int = 0  # The branch of the newest row.

    def add_node(self, index: int, node: HistoryNode) -> int:
        """Add the next row. Return the number of its branch."""
        parent_location = self._location_of_parent(node)
        branch = parent_location.branch
        if node.begins and self._begins_new_branch(parent_location):
            new_branch = HistoryBranch(parent=branch, after_row=parent_location.row_index)
            self.branches.append(new_branch)
            branch = len(self.branches) - 1
        self.branches[branch].rows.append(index)
        self.nodes[index] = node
        self.current_branch = branch
        if node.id:
            self.location_by_row_id[node.id] = self._location_of_newest_row()
        return branch

    def _location_of_parent(self, node: HistoryNode) -> RowLocation:
        if node.parent == ROOT:
            return RowLocation(branch=0, row_index=-1)
        if node.parent in self.location_by_row_id:
            return self.location_by_row_id[node.parent]
        return self._location_of_newest_row()

    def _location_of_newest_row(self) -> RowLocation:
        rows = self.branches[self.current_branch].rows
        return RowLocation(self.current_branch, len(rows) - 1)

    def skip_row(self, name: str, parent: str) -> None:
        """Leave out a row. Its children follow its parent."""
        if name and parent in self.location_by_row_id:
            self.location_by_row_id[name] = self.location_by_row_id[parent]

    def redirect_followers_to_newest_row(self, ids: Sequence[str]) -> None:
        """Attach later children of these rows to the newest row, since a compaction kept them."""
        for row_id in ids:
            self.location_by_row_id[row_id] = self._location_of_newest_row()

    def _begins_new_branch(self, parent: RowLocation) -> bool:
        """Whether a row that can begin a branch does so: if its parent was followed by something
        else before, other than rows of the same reply.
        """
        if len(self.branches) >= MOST_BRANCHES:
            return False
        rows = self.branches[parent.branch].rows
        step_of_parent = ""
        if 0 <= parent.row_index < len(rows):
            step_of_parent = self.nodes[rows[parent.row_index]].step
        for index in rows[parent.row_index + 1 :]:
            later_node = self.nodes[index]
            if later_node.begins:
                return True
            if later_node.step and later_node.step != step_of_parent:
                return True
        return False

    def rows_of_branch(self, branch: int) -> list[int]:
        """Return all rows of a branch, including shared ones."""
        return self.rows_shared_with_parent(branch) + self.branches[branch].rows

    def rows_shared_with_parent(self, branch: int) -> list[int]:
        parent = self.branches[branch].parent
        if parent < 0:
            return []
        end = self.branches[branch].after_row + 1
        return self.rows_shared_with_parent(parent) + self.branches[parent].rows[:end]


def build_branch_sessions(
    tree: HistoryTree,
    template: RecordedSession,
    row_ids: Sequence[str],
    read_messages: Callable[[Sequence[int], ReadingReport], HistoryMessages],
    report: ReadingReport,
) -> list[RecordedSession]:
    """Build a session for each branch, with the fields of `template`. It is named by its first own
    row: `row_ids` has the ids of all rows by their positions.
    """
    sessions: list[RecordedSession] = []
    for number, branch in enumerate(tree.branches):
        is_main_branch = number == 0
        # What cannot be read in a branch's shared rows was reported with its parent.
        report_of_branch = ReadingReport()
        if is_main_branch:
            report_of_branch = report
        reader = read_messages(tree.rows_of_branch(number), report_of_branch)
        session = replace(
            template, messages=tuple(reader.messages), compactions=tuple(reader.compactions)
        )
        if is_main_branch:
            sessions.append(session)
            continue

        shared_rows = tree.rows_shared_with_parent(number)
        shared_count = len(read_messages(shared_rows, ReadingReport()).messages)
        forked_from = ""
        if shared_count > 0:
            forked_from = sessions[branch.parent].session
        first_own_row = ""
        if branch.rows:
            first_own_row = row_ids[branch.rows[0]]
        fork = replace(
            session,
            name=f"{template.name}#{number + 1}",
            session=f"{template.session}#{first_own_row}",
            forked_from=forked_from,
            forked_at=shared_count,
        )
        sessions.append(fork)
    return sessions
