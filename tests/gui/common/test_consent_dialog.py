"""The question before something from elsewhere takes effect."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.theme import Theme

LONG_COMMAND = "npx some-server --option value-with-many-letters " * 8


@pytest.mark.parametrize("text", ["nosuchcommand --x", "a\nb\nc\nd", LONG_COMMAND])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_the_field_of_a_short_text_is_as_high_as_its_lines(
    theme: Theme, text: str, zoom: float
) -> None:
    """One line stood in a field of 17."""
    theme.set_zoom(zoom)
    parent = QWidget()
    try:
        question = ConsentQuestion("Add MCP server", "Add this server?", text, "Add")
        dialog = ConsentDialog(theme, question, parent, bool)
        dialog.show()
        QApplication.processEvents()
        (view,) = dialog.findChildren(ExactTextView)
        assert view.verticalScrollBar().maximum() == 0
        line_height = view.fontMetrics().lineSpacing()
        assert view.height() < view.sizeHint().height() + 2 * line_height
        assert view.is_end_seen
        dialog.reject()
    finally:
        theme.set_zoom(1.0)
        parent.deleteLater()


def test_a_long_text_has_room_and_scrolls(theme: Theme) -> None:
    parent = QWidget()
    question = ConsentQuestion("Allow", "Allow this?", "a line\n" * 300, "Allow")
    dialog = ConsentDialog(theme, question, parent, bool)
    dialog.show()
    QApplication.processEvents()
    (view,) = dialog.findChildren(ExactTextView)
    assert view.height() > 8 * view.fontMetrics().lineSpacing()
    assert not view.is_end_seen
    dialog.reject()
    parent.deleteLater()
