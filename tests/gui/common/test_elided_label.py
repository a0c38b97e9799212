"""Words give way, and nothing of them is lost."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.theme import Theme


def test_what_has_no_room_is_in_the_tip(theme: Theme) -> None:
    around = QWidget()
    label = ElidedLabel(around, Qt.TextElideMode.ElideMiddle, least=40)
    label.set_elided_text("src/<b>a long name</b>.py")
    label.resize(label.sizeHint())
    label._elide_to_width()
    assert (label.text(), label.toolTip()) == ("src/<b>a long name</b>.py", "")
    label.resize(80, 20)
    label._elide_to_width()
    assert "…" in label.text()
    assert label.toolTip() == "<span>src/&lt;b&gt;a long name&lt;/b&gt;.py</span>"
    label.resize(30, 20)
    label._elide_to_width()
    assert (label.text(), label._words) == ("", "src/<b>a long name</b>.py")
