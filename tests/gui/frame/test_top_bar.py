"""The tabs and the model at the top of the window."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.frame.top_bar import PAGES, TopBar
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.theme import Theme
from tests.gui.frame.test_window_layout import frame
from tests.turns import qt_works

__all__ = ["frame"]


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


def test_background_work_is_shortened_before_the_model_is_hidden(theme: Theme) -> None:
    """At 900 by 600 in German, the model was hidden while a summary was tried again."""
    bar = TopBar(theme)
    bar.page_tab("changes").setText("Änderungen")
    bar.page_tab("timeline").setText("Zeitachse")
    bar.model.show_choice("m", "demo/demo-small")
    words = "Neuer Versuch: Zusammenfassung…"
    bar.show_background_work(words, "Stoppen", is_stopped_in_chat=True, hint="demo: no.")
    bar.resize(592, 48)
    bar.show()
    QApplication.processEvents()
    assert bar.model.isVisible()
    assert bar._state.text().startswith("Neuer Versuch")
    assert bar._state.text() != words
    assert bar._state.toolTip() == f"{words}\ndemo: no."
    assert bar.rect().contains(bar.model.geometry())
    bar.resize(1100, 48)
    QApplication.processEvents()
    assert (bar._state.text(), bar._state.toolTip()) == (words, "demo: no.")


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


def test_the_focus_goes_with_the_open_tab(theme: Theme) -> None:
    """After Alt+1 from Timeline, its ring stayed, and two tabs looked chosen."""
    bar = TopBar(theme)
    bar.show()
    bar.mark_open_page("timeline")
    bar.page_tab("timeline").setFocus()
    bar.mark_open_page("chat")
    assert bar.focusWidget() is bar.page_tab("chat")
    bar.close()
