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
    """`coverage_chosen` carries rules for the folders to leave out. All else is to be covered."""

    coverage_chosen = Signal(list)

    def __init__(self, parent: QWidget | None = None) -> None:
        """Lists the largest folders of a folder that is too large to be covered by
        checkpoints, from which changes are undone, so that the user can leave some of
        them out.
        """
        super().__init__(tr("Choose what checkpoints include"), parent, 560, 440)
        why_and_what_to_do = tr(
            "This folder exceeds the limits, so checkpoints leave out some of its files. Changes that commands make to these files cannot be undone. Uncheck the folders that don't need checkpoints. Other folders with the same name are also left out."
        )
        explanation = widgets.build_plain_label(why_and_what_to_do, parent=self)
        self.list = QListWidget(self)
        self.list.setAccessibleName(tr("The largest folders"))
        self.list.itemChanged.connect(self._show_covered_totals)
        self.state = widgets.build_plain_label(tr("Counting files…"), "small", self, wraps=False)
        cover_label = tr("Include the checked folders")
        self.cover_button = widgets.build_push_button(cover_label, self, look="primary")
        self.cover_button.setEnabled(False)
        buttons = widgets.build_confirm_buttons(self, self.cover_button, self.accept, tr("Not now"))
        self.accepted.connect(self._emit_chosen_coverage)
        build_column(explanation, (self.list, 1), self.state, buttons, owner=self)

    def _emit_chosen_coverage(self) -> None:
        self.coverage_chosen.emit(self.exclusion_rules_for_unchecked_folders)

    def show_folder_sizes(self, folders: Sequence[tuple[str, int, int]]) -> None:
        """Shows names, files and bytes of folders. An empty name: files outside any folder."""
        self.list.clear()
        for name, files, size in folders:
            label = tr("Files at the top level")
            if name:
                label = f"{printable_path(name)}/"
            amount = format_count(files, "{n} file", "{n} files")
            item = QListWidgetItem(f"{label}: {amount}, {format_byte_size(size)}", self.list)
            item.setData(Qt.ItemDataRole.UserRole, (name, files, size))
            # No rule can describe such a name.
            if not name or name != name.strip() or "\n" in name:
                item.setFlags(Qt.ItemFlag.NoItemFlags)
            item.setCheckState(Qt.CheckState.Checked)
        self.cover_button.setEnabled(True)
        self._show_covered_totals()

    @property
    def exclusion_rules_for_unchecked_folders(self) -> list[str]:
        left_out = self._list_folders_with_check_state(Qt.CheckState.Unchecked)
        return [f"{escape(name)}/" for name, _, _ in left_out]

    def _list_folders_with_check_state(self, state: Qt.CheckState) -> list[tuple[str, int, int]]:
        folders: list[tuple[str, int, int]] = []
        for row in range(self.list.count()):
            item = self.list.item(row)
            if item.checkState() == state:
                folders.append(item.data(Qt.ItemDataRole.UserRole))
        return folders

    def _show_covered_totals(self) -> None:
        files = 0
        size = 0
        checked_folders = self._list_folders_with_check_state(Qt.CheckState.Checked)
        for _name, files_in_folder, size_of_folder in checked_folders:
            files += files_in_folder
            size += size_of_folder
        file_count = format_count(files, "{n} file", "{n} files")
        words = tr("Checkpoints include {files} ({size}).")
        self.state.setText(words.format(files=file_count, size=format_byte_size(size)))
