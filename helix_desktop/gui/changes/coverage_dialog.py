"""The dialog that asks which folders checkpoints cover when a folder exceeds the limits."""

from collections.abc import Sequence
from glob import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QListWidget, QListWidgetItem, QWidget

from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.translation import format_count, tr


class CheckpointCoverageDialog(widgets.TransientDialog):
    """`coverage_chosen` carries rules for the folders to leave out, and whether the
    rest is covered at any size.
    """

    coverage_chosen = Signal(list, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Choose what checkpoints include"), parent, 560, 440)
        why = widgets.build_plain_label(
            tr(
                "This folder exceeds the limits, so checkpoints leave out some of its files. Changes that commands make to these files cannot be undone. Uncheck the folders that don't need checkpoints. Other folders with the same name are also left out."
            ),
            parent=self,
        )
        self.list = QListWidget(self)
        self.list.setAccessibleName(tr("The largest folders"))
        self.state = widgets.build_plain_label(tr("Counting files…"), "small", self, wraps=False)
        self.cover_button = widgets.build_push_button(
            tr("Include the checked folders"), self, look="primary"
        )
        self.cover_button.setEnabled(False)
        buttons = widgets.build_confirm_buttons(self, self.cover_button, self.accept, tr("Not now"))
        self.accepted.connect(
            lambda: self.coverage_chosen.emit(self.exclusion_rules_for_unchecked_folders, True)
        )
        self.list.itemChanged.connect(self._show_covered_totals)
        build_column(why, (self.list, 1), self.state, buttons, owner=self)

    def show_folder_sizes(self, folders: Sequence[tuple[str, int, int]]) -> None:
        """Shows names, files and bytes of folders. An empty name: files outside any folder."""
        self.list.clear()
        for name, files, held in folders:
            label = f"{printable_path(name)}/" if name else tr("Files at the top level")
            words = (
                f"{label}: {format_count(files, '{n} file', '{n} files')}, {format_byte_size(held)}"
            )
            item = QListWidgetItem(words, self.list)
            item.setData(Qt.ItemDataRole.UserRole, (name, files, held))
            if (
                not name or name != name.strip() or "\n" in name
            ):  # No rule can describe such a name.
                item.setFlags(Qt.ItemFlag.NoItemFlags)
            item.setCheckState(Qt.CheckState.Checked)
        self.cover_button.setEnabled(True)
        self._show_covered_totals()

    @property
    def exclusion_rules_for_unchecked_folders(self) -> list[str]:
        return [
            f"{escape(name)}/"
            for name, _, _ in self._list_folders_with_check_state(Qt.CheckState.Unchecked)
        ]

    def _list_folders_with_check_state(self, state: Qt.CheckState) -> list[tuple[str, int, int]]:
        items = [self.list.item(row) for row in range(self.list.count())]
        return [item.data(Qt.ItemDataRole.UserRole) for item in items if item.checkState() == state]

    def _show_covered_totals(self) -> None:
        told = self._list_folders_with_check_state(Qt.CheckState.Checked)
        files, held = sum(one[1] for one in told), sum(one[2] for one in told)
        count = format_count(files, "{n} file", "{n} files")
        self.state.setText(
            tr("Checkpoints include {files} ({size}).", files=count, size=format_byte_size(held))
        )
