"""Which model does what."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox, QPushButton

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.models_page import ModelsPage
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import QWEN, SONNET
from tests.gui.settings.page_widgets import button, child, choose


def test_a_model_for_each_role_is_chosen_in_the_same_list_as_in_the_window(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    page = ModelsPage(window, bench, [SONNET, QWEN])
    fast = child(page, QPushButton, "fast")
    assert isinstance(fast, QPushButton)
    assert fast.text() == "The main model"
    main = child(page, QPushButton, "main")
    assert isinstance(main, QPushButton)
    assert main.text() == "anthropic/claude-sonnet · 200K · $3 / $15"
    assert page.findChild(QComboBox, "main") is None
    page.resize(700, 500)
    page.show()
    QTest.mouseClick(fast, Qt.MouseButton.LeftButton)
    chooser = page._chooser
    assert chooser is not None
    assert chooser.isVisible()
    chooser.line.setText("qwen")
    chooser.accept_current_row()
    assert bench.workspace.settings.models == {"main": SONNET.name, "fast": QWEN.name}
    QTest.mouseClick(button(page, "Clear"), Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.models["fast"] == ""
    page.close()


def test_how_long_the_main_model_thinks(window: MainWindow, bench: FakeWorkbench) -> None:
    page = ModelsPage(window, bench, [SONNET])
    thinking = child(page, QComboBox, "effort")
    assert isinstance(thinking, QComboBox)
    assert thinking.currentText() == "Default"
    choose(thinking, "high")
    choose(thinking, "")
    assert bench.written == [("effort", "high"), ("effort", None)]
