"""Shows a conversation's sub-agents as a tree with state, context, cost and time, and
lets the user stop one or all.
"""

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QHBoxLayout, QHeaderView, QTreeWidgetItem, QWidget

from helix_desktop.engine.list_rows import SubagentRow
from helix_desktop.gui.common.figure_formats import format_dollars, format_duration
from helix_desktop.gui.common.list_row_model import RowTree
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench

UPDATE_INTERVAL_MS = 800  # While the dialog is open, the rows are updated after each interval.


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
        self._tree.setHeaderLabels(
            [tr("Agent"), tr("Task"), tr("State"), tr("Context"), tr("Cost"), tr("Time")]
        )
        self._tree.setAccessibleName(tr("Agents"))
        for number, width in enumerate((160, 0, 90, 110, 80, 60)):
            self._tree.setColumnWidth(number, width)
        self._tree.header().setStretchLastSection(False)
        self._tree.header().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        self._tree.itemDoubleClicked.connect(lambda _item, _column: self._open_selected_agent())
        build_column(
            self._summary_label,
            self._tree,
            self._build_button_row(),
            owner=self,
            margins=(20, 16, 20, 16),
        )
        timer = QTimer(self)
        timer.timeout.connect(self.update_agent_rows)
        timer.start(UPDATE_INTERVAL_MS)
        self.update_agent_rows()

    def _build_button_row(self) -> QHBoxLayout:
        self._all = build_push_button(tr("Stop all"), self, self.stop_shown_agents, "danger")
        close = build_push_button(tr("Close"), self, self.accept, "primary")
        self._open = build_push_button(tr("Open"), self, self._open_selected_agent)
        self._stop = build_push_button(tr("Stop"), self, self._stop_selected_agent)
        self._tree.currentItemChanged.connect(lambda _now, _before: self.update_agent_rows())
        return build_row(1, self._open, self._stop, self._all, close)

    def update_agent_rows(self) -> None:
        """Updates all rows. Only changed cells are painted."""
        rows = self._bench.workforce.list_agent_rows(self._conversation)
        for row in rows:
            item = self._items.get(row.id) or self._add_agent_item(row)
            for column, text in enumerate(_agent_row_cells(row)):
                if item.text(column) != text:
                    item.setText(column, text)
        working = sum(row.state in ("working", "asking") for row in rows)
        agents = format_count(len(rows), "{n} agent", "{n} agents")
        cost = format_dollars(sum(row.cost for row in rows))
        words = tr("{agents}, {working} working, {cost}", agents=agents, working=working, cost=cost)
        if not rows:
            words = tr("This conversation has no sub-agents.")
        self._summary_label.setText(words)
        unfinished = {row.id for row in rows if row.state in ("working", "asking", "waiting")}
        self._all.setEnabled(bool(unfinished))
        self._open.setEnabled(bool(self._selected_agent_id()))
        self._stop.setEnabled(self._selected_agent_id() in unfinished)

    def _add_agent_item(self, row: SubagentRow) -> QTreeWidgetItem:
        item = QTreeWidgetItem()
        self._items[row.id] = item
        item.setData(0, Qt.ItemDataRole.UserRole, row.id)
        item.setToolTip(1, safe_tooltip(row.task))
        above = self._items.get(row.parent)
        if above is not None:
            above.addChild(item)
            above.setExpanded(above.childCount() == 1 or above.isExpanded())
        else:
            self._tree.addTopLevelItem(item)
        return item

    def _selected_agent_id(self) -> str:
        item = self._tree.currentItem()
        if item is None:
            return ""
        return str(item.data(0, Qt.ItemDataRole.UserRole))

    def _open_selected_agent(self) -> None:
        chosen = self._selected_agent_id()
        if chosen:
            self._open_conversation(chosen)

    def _stop_selected_agent(self) -> None:
        chosen = self._selected_agent_id()
        if chosen:
            self._bench.workforce.stop_agent(chosen)
            self.update_agent_rows()

    def stop_shown_agents(self) -> None:
        self._bench.workforce.stop_all_agents(self._conversation)
        self.update_agent_rows()


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
