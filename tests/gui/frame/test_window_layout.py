from __future__ import annotations

import pytest
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop.gui.frame.top_bar import PAGES, TopBar
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


def test_the_tabs_are_whole_in_the_narrowest_bar_in_german(theme: Theme) -> None:
    bar = TopBar(theme)
    bar.page_tab("changes").setText("Änderungen")
    bar.page_tab("timeline").setText("Zeitachse")
    bar.resize(bar.minimumWidth(), 48)
    bar.show()
    QApplication.processEvents()
    assert all(
        bar.page_tab(page).width() >= bar.page_tab(page).sizeHint().width() for page in PAGES
    )


def test_with_text_twice_as_large_the_tabs_are_whole_beside_the_list_and_wide_again_later(
    frame: WindowFrame, theme: Theme
) -> None:
    """In German, at 900 by 600, the last letter of the last tab was outside of the window."""
    frame.top.page_tab("changes").setText("Änderungen")
    frame.top.page_tab("timeline").setText("Zeitachse")
    frame.resize(900, 600)
    qt_works(10)
    before = [frame.top.page_tab(page).width() for page in PAGES]
    theme.set_zoom(2.0)
    qt_works(10)
    bar = frame.top
    last = frame.top.page_tab("timeline")
    assert bar.mapTo(frame, bar.rect().topRight()).x() < 900
    assert bar.rect().contains(last.geometry())
    assert all(
        bar.page_tab(page).width() >= bar.page_tab(page).sizeHint().width() for page in PAGES
    )
    theme.set_zoom(1.0)
    qt_works(10)
    assert [frame.top.page_tab(page).width() for page in PAGES] == before


def test_to_a_screen_reader_the_pages_are_one_choice_and_no_check_boxes(theme: Theme) -> None:
    bar = TopBar(theme)
    bar.mark_open_page("chat")
    bar.mark_open_page("cache")
    tabs = [QAccessible.queryAccessibleInterface(bar.page_tab(page)) for page in PAGES]
    assert {tab.role() for tab in tabs} == {QAccessible.Role.RadioButton}
    assert [page for page, tab in zip(PAGES, tabs, strict=True) if tab.state().checked] == ["cache"]


def test_where_there_is_little_room_the_tabs_stay(theme: Theme) -> None:
    bar = TopBar(theme)
    bar.model.show_choice("m", "claude-sonnet")
    bar.show()
    seen = []
    for width in (780, 540, 380):
        bar.resize(width, 48)
        seen.append((bar._tabs["timeline"].isVisible(), bar.model.isVisible()))
    assert seen == [(True, True)] * 3
    bar.page_tab("changes").setText("A page with a long name")
    bar.fit_top_bar()
    assert (bar._tabs["timeline"].isVisible(), bar.model.isVisible()) == (True, False)


def test_at_200_percent_the_model_has_room_beside_the_german_tabs(theme: Theme) -> None:
    """On a screen of 1440 pixels, the page is 440 wide: the model's name was left out."""
    bar = TopBar(theme)
    bar.page_tab("changes").setText("Änderungen")
    bar.page_tab("timeline").setText("Zeitachse")
    bar.model.show_choice("m", "local-8765/walker-1")
    bar.resize(440, 48)
    bar.show()
    QApplication.processEvents()
    assert bar.model.isVisible()
    assert all(
        bar.page_tab(page).width() >= bar.page_tab(page).sizeHint().width() for page in PAGES
    )
    assert bar.rect().contains(bar.model.geometry())


def test_a_long_models_name_is_shortened_in_its_middle(theme: Theme) -> None:
    bar = TopBar(theme)
    bar.model.show_choice("m", "openrouter/anthropic/claude-4.5")
    bar.resize(900, 48)
    bar.show()
    assert bar.model.text() == "openrouter/anthropic/claude-4.5 ▾"
    bar.resize(560, 48)
    begins, _, ends = bar.model.text().removesuffix(" ▾").partition("…")
    assert len(begins) > 2
    assert len(ends) > 2
    assert "openrouter/anthropic/claude-4.5".startswith(begins)
    assert "openrouter/anthropic/claude-4.5".endswith(ends)
    assert bar.minimumSizeHint().width() <= 560
    bar.model.show_choice("m", "openrouter/anthropic/claude-4.6")
    bar.fit_top_bar()
    assert "…" in bar.model.text()
    bar.resize(900, 48)
    assert bar.model.text() == "openrouter/anthropic/claude-4.6 ▾"
    bar.model.show_choice("m", "peer/organisation-of-somebody/very-long-name-2507-q4")
    assert bar.model.text() == "peer/organisatio…ng-name-2507-q4 ▾"


@pytest.mark.parametrize("needed", [False, True])
def test_a_name_is_shortened_by_no_more_than_is_needed(theme: Theme, needed: bool) -> None:
    bar = TopBar(theme)
    bar.model.show_choice("m", "openrouter/anthropic/claude-4.5")
    bar.show_sidebar_button(needed=needed)
    bar.show()
    layout = bar.layout()
    assert layout is not None
    step = 3 * bar.model.fontMetrics().horizontalAdvance(
        "m"
    )  # what shortening goes by, in any font
    for width in range(480, 760, 9):
        bar.resize(width, 48)
        assert layout.minimumSize().width() <= width
        if "…" in bar.model.text():
            assert width - layout.sizeHint().width() <= step, width


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


def test_the_focus_goes_with_the_open_tab(theme: Theme) -> None:
    """After Alt+1 from Timeline, its ring stayed, and two tabs looked chosen."""
    bar = TopBar(theme)
    bar.show()
    bar.mark_open_page("timeline")
    bar.page_tab("timeline").setFocus()
    bar.mark_open_page("chat")
    assert bar.focusWidget() is bar.page_tab("chat")
    bar.close()
