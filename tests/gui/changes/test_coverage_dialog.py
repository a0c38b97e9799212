"""Which of the largest folders checkpoints cover."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.changes.coverage_dialog import CheckpointCoverageDialog


def test_the_totals_are_those_of_the_checked_folders(application: QApplication) -> None:
    dialog = CheckpointCoverageDialog()
    assert dialog.state.text() == "Counting files…"
    dialog.show_folder_sizes([("data", 300_000, 5_000_000_000), ("src", 20, 80_000)])
    assert dialog.state.text() == "Checkpoints include 300,020 files (5.0 GB)."
    dialog.list.item(0).setCheckState(Qt.CheckState.Unchecked)
    assert dialog.state.text() == "Checkpoints include 20 files (80.0 KB)."
    assert dialog.exclusion_rules_for_unchecked_folders == ["data/"]
