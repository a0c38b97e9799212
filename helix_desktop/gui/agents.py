"""The agents below a conversation as a tree: what each does, how full its context is, what it costs; stop one or all."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.rows import AgentRow
from helix_desktop.gui.meter import short
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.shared.figures import lasted, money
from helix_desktop.gui.shared.plain import push_button
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.words import count, tr

EVERY, PARTS = 200, 4  # milliseconds; a panel that is open looks this often, each time at one part of its rows


class AgentsDialog(QDialog):
    """`open_conversation` is called with an agent's conversation."""

    def __init__(
        self, bench: Workbench, conversation: str, open_conversation: Callable[[str], object], parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._bench, self._conversation, self._open = bench, conversation, open_conversation
        self._items: dict[str, QTreeWidgetItem] = {}
        self._turn = 0
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Agents"))
        self.resize(860, 420)
        self._sum = QLabel(self)
        self._sum.setProperty("look", "muted")
        self._tree = QTreeWidget(self)
        self._tree.setHeaderLabels([tr("Agent"), tr("Task"), tr("State"), tr("Context"), tr("Cost"), tr("Time")])
        self._tree.setAccessibleName(tr("Agents"))
        for number, width in enumerate((160, 0, 90, 110, 80, 60)):
            self._tree.setColumnWidth(number, width)
        self._tree.header().setStretchLastSection(False)
        self._tree.header().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        self._tree.itemDoubleClicked.connect(lambda item, _column: self._show(item))
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 16, 20, 16)
        for widget in (self._sum, self._tree):
            column.addWidget(widget)
        column.addLayout(self._buttons())
        timer = QTimer(self)
        timer.timeout.connect(lambda: self.look(PARTS))
        timer.start(EVERY)
        self.look()

    def _buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.addStretch(1)
        for text, look, act in (
            (tr("Open"), "", self._show_current),
            (tr("Stop"), "", self._stop),
            (tr("Stop all"), "danger", self.stop_all),
            (tr("Close"), "primary", self.accept),
        ):
            button = push_button(text, self, act, look)
            row.addWidget(button)
            if act == self.stop_all:
                self._all = button
        return row

    def look(self, parts: int = 1) -> None:
        """Show them as they are now, or one part of them after the other; only what has changed is painted, and what was
        folded stays so.
        """
        rows = self._bench.workforce.rows(self._conversation)
        new = {row.id: self._added(row) for row in rows if row.id not in self._items}
        self._turn = (self._turn + 1) % parts
        for number, row in enumerate(rows):
            item = self._items[row.id]
            if row.id not in new and number % parts != self._turn:
                continue
            for column, text in enumerate(_cells(row)):
                if item.text(column) != text:
                    item.setText(column, text)
        working = sum(row.state in ("working", "asking") for row in rows)
        said = count(len(rows), "{n} agent", "{n} agents")
        cost = money(sum(row.cost for row in rows))
        words = tr("{agents}, {working} working, {cost}", agents=said, working=working, cost=cost)
        self._sum.setText(words if rows else tr("This conversation has no sub-agents."))
        self._all.setEnabled(working > 0 or any(row.state == "waiting" for row in rows))

    def _added(self, row: AgentRow) -> QTreeWidgetItem:
        item = self._items[row.id] = QTreeWidgetItem()
        item.setData(0, Qt.ItemDataRole.UserRole, row.id)
        item.setToolTip(1, harmless(row.task))
        above = self._items.get(row.parent)
        if above is not None:
            above.addChild(item)
            above.setExpanded(above.childCount() == 1 or above.isExpanded())
        else:
            self._tree.addTopLevelItem(item)
        return item

    def _chosen(self) -> str:
        item = self._tree.currentItem()
        return str(item.data(0, Qt.ItemDataRole.UserRole)) if item is not None else ""

    def _show_current(self) -> None:
        if chosen := self._chosen():
            self._open(chosen)

    def _show(self, item: QTreeWidgetItem) -> None:
        self._open(str(item.data(0, Qt.ItemDataRole.UserRole)))

    def _stop(self) -> None:
        if chosen := self._chosen():
            self._bench.workforce.stop(chosen)
            self.look()

    def stop_all(self) -> None:
        self._bench.workforce.stop_all(self._conversation)
        self.look()


def _cells(row: AgentRow) -> list[str]:
    states = {
        "working": tr("working"),
        "asking": tr("waiting for you"),
        "waiting": tr("waiting"),
        "done": tr("done"),
        "failed": tr("failed"),
        "stopped": tr("stopped"),
    }
    meter = f"{short(row.used)} / {short(row.window)}"
    name, task = harmless(row.name), harmless(row.task)
    return [name, task, states.get(row.state, row.state), meter, money(row.cost), lasted(row.seconds)]
