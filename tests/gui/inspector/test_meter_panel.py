"""The panel above the meter gives the keyboard back."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import (
    ModelReplied,
    ModelRole,
    ModelSet,
    Recorded,
    Stop,
    Text,
    Usage,
    UserSaid,
)
from helix_desktop.engine.view import build_state
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.inspector.meter_panel import PANEL_WIDTH, ContextPanel
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.translation import set_translations, translation_catalogue_path
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
        assert ("tokens · assumed free" in figures.all_text()) is known
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


def test_the_panel_says_what_the_next_message_costs_and_what_that_is_made_of(
    window: MainWindow, session: FakeSession
) -> None:
    priced = ModelSet(ModelRole.MAIN, "own/scripted", 32_000, price_input=3.0, price_output=15.0)
    session.state = build_state(())
    session.append(priced, UserSaid((Text("Hello", 1),)))
    window.sides.show_session_or_new(session)
    draft = "word " * 4_000
    window.chat.composer.text.setPlainText(draft)
    window.context_panel_opener.toggle_context_panel()
    shown = window.context_panel.figures.all_text()
    expected = session.context.estimate_next_message((Text(draft.strip()),))
    assert expected.message == 4_999
    assert expected.dollars > 4_999 * 3 / 1e6
    assert f"Next message  about {format_dollars(expected.dollars)}" in shown
    assert "5K tokens of your message" in shown


def test_without_a_price_the_panel_says_the_tokens_of_the_next_message_and_a_price_changes_it_at_once(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.state = build_state(())
    unpriced = ModelSet(ModelRole.MAIN, "own/scripted", 32_000)
    session.append(unpriced, UserSaid((Text("Hello", 9),)))
    session.append(ModelReplied((Text("Yes", 1),), "own/scripted", Stop.END, Usage(100)))
    window.sides.show_session_or_new(session)
    window.context_panel_opener.toggle_context_panel()
    figures = window.context_panel.figures
    context_tokens = session.context.estimate_next_message(()).context
    assert f"Next message  about {context_tokens} tokens" in figures.all_text()
    assert "Set the price…" in figures.all_text()

    # Nothing has recorded the price yet, but the next request will have it.
    priced = replace(unpriced, price_input=3.0, price_output=15.0)
    recorded_price = Recorded(session.id, session.state.seq + 1, time.time(), priced)
    expected_state = build_state((*session.state.facts, recorded_price))
    monkeypatch.setattr(FakeSession, "expected_state", property(lambda _session: expected_state))
    window.chat_progress._show_meter_and_price_of(window.chat, session)
    assert "Set the price…" not in figures.all_text()
    assert "Next message  about $" in figures.all_text()


@pytest.mark.parametrize("language", ["en", "de", "zh_CN"])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_the_links_stand_apart_and_are_whole(
    window: MainWindow, language: str, zoom: float
) -> None:
    """The ring of the tour around the first link touched the second."""
    if language != "en":
        set_translations(json.loads(translation_catalogue_path(language).read_text("utf-8")))
    try:
        window.theme.set_zoom(zoom)
        window.resize(1400, 1000)
        panel = ContextPanel(window.theme, window)
        panel.resize(window.theme.zoomed_pixels(PANEL_WIDTH), 600)
        panel.show()
        QApplication.processEvents()
        links = [panel.fold_link, panel.request_link, panel.side_link]
        for link in links:
            assert link.width() >= link.sizeHint().width()
            assert link.geometry().right() <= panel.width() - 10
        # Also at the usual width, which is less where the window is high.
        assert links[-1].geometry().right() < window.theme.zoomed_pixels(PANEL_WIDTH - 18)
        for left, right in itertools.pairwise(links):
            ring = left.geometry().adjusted(-5, -5, 5, 5)
            assert not ring.intersects(right.geometry())
    finally:
        window.theme.set_zoom(1.0)
        set_translations({})
