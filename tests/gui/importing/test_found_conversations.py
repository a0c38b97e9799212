"""Why a conversation cannot be imported stands at its row."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui.importing.found_conversations import FoundConversationTree
from helix_desktop.histories.history_finding import FoundHistories


def test_a_complaint_about_a_file_stands_at_its_row_and_others_come_back(
    application: QApplication,
) -> None:
    owner = QWidget()
    tree = FoundConversationTree(owner)
    tree.show_groups(
        [
            FoundHistories("codex", Path("/a.jsonl"), "/gone", 1, 20_000, 0.0, 1_766_000_000.0),
            FoundHistories("codex", Path("/b.jsonl"), "/gone", 1, 20_000, 0.0, 1_767_000_000.0),
        ]
    )
    others = tree.show_reasons_and_return_others(["/b.jsonl is damaged.", "The disk is full."])
    assert others == ["The disk is full."]
    row = tree.rows["/b.jsonl", "/gone"]
    other_row = tree.rows["/a.jsonl", "/gone"]
    texts = [row.text(column) for column in range(tree.columnCount())]
    other_texts = [other_row.text(column) for column in range(tree.columnCount())]
    assert "is damaged" in " ".join(texts)
    assert "is damaged" not in " ".join(other_texts)
