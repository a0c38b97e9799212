"""Shows a conversation's sub-agents as a tree with state, context, cost and time, and
lets the user stop one or all.
"""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QHBoxLayout, QHeaderView, QTreeWidgetItem, QWidget

from helix_desktop.engine.list_rows import SubagentRow
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars, format_duration
from helix_desktop.gui.common.list_row_model import RowTree
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench

WORKING_STATES = ("working", "asking")
UNFINISHED_STATES = ("working", "asking", "waiting")
UPDATE_INTERVAL_MS = 800  # While the dialog is open, the rows are updated after each interval.


@dataclass(frozen=True, slots=True)
class AgentColumn:
    """`width` is in pixels; 0 for the column that takes what the others leave."""

    title: str
    width: int


class SubagentsDialog(TransientDialog):
    """`open_conversation` is called with the conversation of an agent."""

    def __init__(
        self,
        bench: Workbench,
        conversation: str,
        open_conversation: Callable[[str], object],
        parent: QWidget,
    ) -> None:
        super().__init__(tr("Agents"), parent, 860, 420)
        self._bench = bench
        self._conversation = conversation
        self._open_conversation = open_conversation
        self._items: dict[str, QTreeWidgetItem] = {}
        self._summary_label = build_plain_label("", "muted", self, wraps=False)
        self._tree = RowTree(self)
        columns = (
            AgentColumn(tr("Agent"), 160),
            AgentColumn(tr("Task"), 0),
            AgentColumn(tr("State"), 90),
            AgentColumn(tr("Context"), 110),
            AgentColumn(tr("Cost"), 80),
            AgentColumn(tr("Time"), 60),
        )
        titles = [column.title for column in columns]
        self._tree.setHeaderLabels(titles)
        self._tree.setAccessibleName(tr("Agents"))
        header = self._tree.header()
        header.setStretchLastSection(False)
        for index, column in enumerate(columns):
            if column.width:
                self._tree.setColumnWidth(index, column.width)
            else:
                header.setSectionResizeMode(index, QHeaderView.ResizeMode.Stretch)
        self._tree.itemDoubleClicked.connect(self._open_selected_agent)
        button_row = self._build_button_row()
        margins = (20, 16, 20, 16)
        build_column(self._summary_label, self._tree, button_row, owner=self, margins=margins)
        timer = QTimer(self)
        timer.timeout.connect(self.update_agent_rows)
        timer.start(UPDATE_INTERVAL_MS)
        self.update_agent_rows()

    def _build_button_row(self) -> QHBoxLayout:
        self._all = build_push_button(tr("Stop all"), self, self.stop_shown_agents, "danger")
        close = build_push_button(tr("Close"), self, self.accept, "primary")
        self._open = build_push_button(tr("Open"), self, self._open_selected_agent)
        self._stop = build_push_button(tr("Stop"), self, self._stop_selected_agent)
        self._tree.currentItemChanged.connect(self.update_agent_rows)
        return build_row(1, self._open, self._stop, self._all, close)

    def update_agent_rows(self) -> None:
        """Updates all rows. Only changed cells are painted."""
        rows = self._bench.workforce.list_agent_rows(self._conversation)
        for row in rows:
            item = self._items.get(row.id) or self._add_agent_item(row)
            for column, text in enumerate(_agent_row_cells(row)):
                if item.text(column) != text:
                    item.setText(column, text)
        self._summary_label.setText(_summarize_agents(rows))
        selected_id = self._selected_agent_id()
        stoppable_ids: set[str] = set()
        for row in rows:
            if row.state in UNFINISHED_STATES:
                stoppable_ids.add(row.id)
        self._all.setEnabled(bool(stoppable_ids))
        self._open.setEnabled(bool(selected_id))
        self._stop.setEnabled(selected_id in stoppable_ids)

    def _add_agent_item(self, row: SubagentRow) -> QTreeWidgetItem:
        item = QTreeWidgetItem()
        self._items[row.id] = item
        item.setData(0, Qt.ItemDataRole.UserRole, row.id)
        item.setToolTip(1, safe_tooltip(row.task))
        parent_item = self._items.get(row.parent)
        if parent_item is None:
            self._tree.addTopLevelItem(item)
            return item
        parent_item.addChild(item)
        # With its first child, an agent is opened; later, the user may have closed it.
        if parent_item.childCount() == 1:
            parent_item.setExpanded(True)
        return item

    def _selected_agent_id(self) -> str:
        item = self._tree.currentItem()
        if item is None:
            return ""
        return str(item.data(0, Qt.ItemDataRole.UserRole))

    def _open_selected_agent(self) -> None:
        agent_id = self._selected_agent_id()
        if agent_id:
            self._open_conversation(agent_id)

    def _stop_selected_agent(self) -> None:
        agent_id = self._selected_agent_id()
        if agent_id:
            self._bench.workforce.stop_agent(agent_id)
            self.update_agent_rows()

    def stop_shown_agents(self) -> None:
        self._bench.workforce.stop_all_agents(self._conversation)
        self.update_agent_rows()


def _summarize_agents(rows: Sequence[SubagentRow]) -> str:
    if not rows:
        return tr("This conversation has no sub-agents.")
    working_count = 0
    dollars = 0.0
    for row in rows:
        dollars += row.cost
        if row.state in WORKING_STATES:
            working_count += 1
    return tr(
        "{agents}, {working} working, {cost}",
        agents=format_count(len(rows), "{n} agent", "{n} agents"),
        working=working_count,
        cost=format_dollars(dollars),
    )


def _agent_row_cells(row: SubagentRow) -> list[str]:
    meter = f"{format_token_count(row.used)} / {format_token_count(row.window)}"
    return [
        make_safe_text(row.name),
        make_safe_text(row.task),
        translate_name("state of an agent", row.state),
        meter,
        format_dollars(row.cost),
        format_duration(row.seconds),
    ]
