"""The panel above the meter gives the keyboard back."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import ModelRole, ModelSet, Text, UserSaid
from helix_desktop.engine.view import build_state
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeSession


@pytest.mark.parametrize("key", [Qt.Key.Key_Escape, Qt.Key.Key_Return])
def test_the_keyboard_is_at_the_meter_again_once_it_is_closed(
    window: MainWindow, key: Qt.Key
) -> None:
    """It was at the first workspace of the rail: what was typed next was lost, and
    Enter left the workspace.
    """
    assert QTest.qWaitForWindowActive(window)
    window.context_panel_opener.toggle_context_panel()
    panel = window.context_panel
    assert panel.isVisible()
    window.window_actions["fold-handover"].setEnabled(False)
    panel.fold_link.setFocus()
    QTest.keyClick(panel.fold_link, key)
    assert panel.isHidden()
    assert window.focusWidget() is window.chat.composer.context_button


def test_where_the_window_is_low_the_panel_is_wider(
    window: MainWindow,
) -> None:
    window.resize(900, 560)
    window.context_panel_opener.toggle_context_panel()
    QApplication.processEvents()
    panel = window.context_panel
    assert panel.isVisible()
    assert panel.width() > window.theme.zoomed_pixels(400)
    window.context_panel_opener.toggle_context_panel()
    window.resize(1400, 1000)
    QApplication.processEvents()
    window.context_panel_opener.toggle_context_panel()
    assert panel.width() == window.theme.zoomed_pixels(400)


def test_the_panel_has_all_its_figures_also_where_laying_them_out_takes_long(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was as high as what a slice had laid out, and the rest was cut off."""
    window.context_panel_opener.toggle_context_panel()
    usual = window.context_panel.figures.height()
    window.context_panel_opener.toggle_context_panel()
    monkeypatch.setattr("helix_desktop.gui.views.boxes_view.SLICE_SECONDS", 0.0)
    window.context_panel_opener.toggle_context_panel()
    assert window.context_panel.figures.height() == usual > 300


def test_where_no_price_is_known_it_can_be_set_where_the_cost_would_stand(
    window: MainWindow, session: FakeSession
) -> None:
    wanted: list[bool] = []
    window.window_actions.set_action_handler("model-price", lambda: wanted.append(True))
    for model, known in (("own/scripted", False), ("ollama/llama", True)):
        session.state = build_state(())
        session.append(ModelSet(ModelRole.MAIN, model, 32_000), UserSaid((Text("Hello", 1),)))
        window.sides.show_session_or_new(session)
        # No figure and no words stand there: they would displace the meter.
        assert "price" not in window.chat.composer._figures.text()
        hint = window.chat.composer.context_button.toolTip()
        assert ("The price is not known." in hint) is not known
        window.context_panel_opener.toggle_context_panel()
        figures = window.context_panel.figures
        assert ("Set the price…" in figures.all_text()) is not known
        assert "the price is not known" not in figures.all_text(), (
            "with these words, the figure's name is cut off"
        )
        for _, spot in enumerate(figures.visible_hot_spots()):
            figures.intent_requested.emit(figures.hot_spot_in_viewport(spot)[0].act)  # type: ignore[index]
        window.switch_to_page("timeline")
        for _ in range(40):
            QApplication.processEvents()
        assert window.pages.timeline._price_link.isHidden() is known
        window.switch_to_page("chat")
        window.context_panel_opener.toggle_context_panel()
    assert wanted == [True]
