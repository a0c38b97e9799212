"""The page of the fleet with the conversations that run or have a copy of the repository."""

from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.widgets import build_push_button
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import tr


class FleetConversationsPage(QWidget):
    def __init__(self, parts: FleetPageParts, parent: QWidget) -> None:
        super().__init__(parent)
        self._parts = parts
        columns = (
            FleetColumn(tr("State"), 150, is_whole=True),
            FleetColumn(tr("Conversation"), 0),
            FleetColumn(tr("Workspace"), 130),
            FleetColumn(tr("Agent"), 110),
            FleetColumn(tr("Copy of"), 110),
            FleetColumn(tr("Changed files"), 200),
            FleetColumn(tr("Also changed in other copies"), 260),
            FleetColumn(tr("Cost"), 80, is_whole=True),
        )
        empty_words = tr(
            "Conversations that are running or have their own copy of the repository are listed here."
        )
        self.conversation_list = FleetList(tr("Conversations"), columns, self, empty_words)
        self.conversation_list.itemActivated.connect(self._open_listed_conversation)
        self.conversation_list.currentItemChanged.connect(self.enable_open_button)
        for bench in parts.desk.opened_workbenches():
            parts.run_work(bench.copies.refresh_changed_files(""))
        self.open = build_push_button(tr("Open conversation"), self, self._open_listed_conversation)
        buttons = build_row(1, self.open)
        build_column((self.conversation_list, 1), buttons, owner=self, margins=0, spacing=12)

    def show_conversations(self) -> None:
        cells = fleet_rows.list_conversation_cells(self._parts.desk.opened_workbenches())
        self.conversation_list.show_rows(cells)
        self.enable_open_button()

    def has_conversations(self) -> bool:
        return bool(self.conversation_list.topLevelItemCount())

    def enable_open_button(self) -> None:
        self.open.setEnabled(bool(self.conversation_list.chosen_row()))

    def _open_listed_conversation(self) -> None:
        workspace, _blank, conversation = self.conversation_list.chosen_row().partition(" ")
        self._parts.open_conversation(workspace, conversation)
