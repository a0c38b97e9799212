from __future__ import annotations

import pytest
from PySide6.QtWidgets import QLabel

from helix_desktop.gui.frame.window_layout import NARROW_WINDOW_WIDTH, WindowFrame
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from tests.turns import qt_works


@pytest.fixture
def frame(theme: Theme, state_file: WindowStateFile) -> WindowFrame:
    made = WindowFrame(theme, state_file)
    made.add_page("chat", QLabel("chat"))
    made._side.addWidget(QLabel("inspector"))
    made.add_page("cache", QLabel("cache"))
    made.add_page("timeline", QLabel("timeline"))
    made.add_page("welcome", QLabel("welcome"))
    made.resize(1440, 900)
    made.restore_window_layout("one")
    made.show()
    return made


def test_the_chat_alone_has_a_side_panel(frame: WindowFrame) -> None:
    frame.toggle_side_panel()
    widths = []
    for page in ("chat", "cache", "timeline", "chat"):
        frame.switch_to_page(page)
        widths.append(frame._splitter.sizes()[2])
    assert widths == [299, 0, 0, 299]


def test_a_width_the_user_gave_is_kept(frame: WindowFrame) -> None:
    frame.toggle_side_panel()
    frame._splitter.setSizes([251, 700, 431])
    frame._save_dragged_widths(0, 0)
    frame.switch_to_page("timeline")
    assert frame._splitter.sizes()[2] == 0
    frame.switch_to_page("chat")
    assert abs(frame._splitter.sizes()[2] - 431) <= 2


def test_the_welcome_has_neither_sidebar_nor_tabs(frame: WindowFrame) -> None:
    frame.switch_to_page("welcome")
    assert not frame.is_sidebar_shown
    assert not frame.top.isVisible()
    frame.switch_to_page("chat")
    assert frame.is_sidebar_shown


def test_a_page_nobody_added_is_not_shown(frame: WindowFrame) -> None:
    frame.switch_to_page("nowhere")
    assert frame.showing.page == "chat"


@pytest.mark.parametrize("width", [880, 1024, NARROW_WINDOW_WIDTH - 1])
def test_the_page_always_has_room(frame: WindowFrame, width: int) -> None:
    frame.resize(width, 640)
    qt_works(10)
    for page in ("chat", "timeline"):
        frame.switch_to_page(page)
        assert frame._splitter.sizes()[1] >= 200
        assert sum(frame._splitter.sizes()) <= width


def test_large_text_leaves_the_page_its_room_and_usual_text_brings_the_widths_back(
    frame: WindowFrame, theme: Theme
) -> None:
    frame.toggle_side_panel()
    before, *_ = frame._splitter.sizes()
    theme.set_zoom(2.0)
    sidebar, page, _ = frame._splitter.sizes()
    assert not frame.is_side_panel_shown
    assert page > 2 * sidebar
    theme.set_zoom(1.0)
    assert frame._splitter.sizes()[0] == before
    assert frame.is_side_panel_shown
