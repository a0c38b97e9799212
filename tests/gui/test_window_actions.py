from __future__ import annotations

from collections import Counter

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from helix_desktop.gui.frame.command_palette import PaletteItem, match_palette_items
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.search_suggestions import suggest_actions
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.window_actions import ActionRegistry, declare_actions
from helix_desktop.program_settings import SHORTCUTS, ProgramSettings
from tests.gui.fake_desk import FakeWorkbench


def test_no_two_actions_share_an_id_or_a_shortcut() -> None:
    actions = declare_actions()
    assert max(Counter(each.id for each in actions).values()) == 1
    assert max(Counter(each.shortcut for each in actions if each.shortcut).values()) == 1


def test_an_action_is_disabled_until_somebody_does_it(
    theme: Theme, settings: ProgramSettings
) -> None:
    window = QWidget()
    done = list[str]()
    actions = ActionRegistry(window, settings)
    assert not actions["new"].isEnabled()
    actions.set_action_handler("new", lambda: done.append("new"))
    window.show()
    assert QTest.qWaitForWindowActive(window)
    QTest.keyClick(window, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert done == ["new"]


def test_a_changed_shortcut_is_kept_and_taken_from_the_one_that_had_it(
    theme: Theme, settings: ProgramSettings
) -> None:
    window = QWidget()
    actions = ActionRegistry(window, settings)
    robbed = actions.change_shortcut_and_return_robbed_title("rename", QKeySequence("Ctrl+N"))
    assert robbed == actions["new"].text()
    again = ActionRegistry(window, settings)
    assert again["rename"].shortcut() == QKeySequence("Ctrl+N")
    assert again["new"].shortcut().isEmpty()
    again.reset_shortcuts()
    assert settings[SHORTCUTS] == {}
    assert again["new"].shortcut() == QKeySequence("Ctrl+N")


def test_every_listed_shortcut_is_reset(theme: Theme, settings: ProgramSettings) -> None:
    """Those of actions that no menu shows, such as Allow once, stayed as they were."""
    window = QWidget()
    actions = ActionRegistry(window, settings)
    listed = actions.list_actions_with_shortcuts()
    for number, action in enumerate(listed):
        keys = QKeySequence(f"Ctrl+Alt+Shift+F{number}" if number < 36 else f"Meta+{number - 30}")
        actions.change_shortcut_and_return_robbed_title(action.id, keys)
    actions.reset_shortcuts()
    assert settings[SHORTCUTS] == {}
    for action in listed:
        assert actions[action.id].shortcut() == QKeySequence(action.shortcut)


MOST_COMMANDS = 50


def test_the_menus_hold_what_is_not_elsewhere(theme: Theme, settings: ProgramSettings) -> None:
    window = QWidget()
    actions = ActionRegistry(window, settings)
    bar = QMenuBar(window)
    actions.fill_menu_bar(bar)
    assert len(bar.actions()) > 3
    shown = sum(len(each.actions()) for each in bar.findChildren(QMenu))
    assert shown == len(list(actions)) <= MOST_COMMANDS
    assert all(each.home for each in declare_actions() if each not in list(actions))


@pytest.mark.parametrize("words", ["lab", "compare", "comparison", "compare models", "presets"])
def test_the_comparison_of_settings_is_found_by_what_people_call_it(
    window: MainWindow, words: str
) -> None:
    """The defect: neither "lab" nor "compare" found what compares presets and models."""
    found = match_palette_items(suggest_actions(window.window_actions), words)
    assert "Lab: what would other settings have cost here?" in [item.text for item in found]


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("dark", "Dark theme"),
        ("price", "Set the model's price…"),
        ("hooks", "Rules, skills, hooks and agents in this folder…"),
        ("trust", "Rules, skills, hooks and agents in this folder…"),
        ("keyboard", "Keyboard shortcuts"),
    ],
)
def test_what_stands_in_the_settings_is_found_but_does_not_lengthen_the_list(
    window: MainWindow, words: str, title: str
) -> None:
    """The defect: the window's search found nothing that has its place in the settings."""
    offered = suggest_actions(window.window_actions)
    assert title in [item.text for item in match_palette_items(offered, words)]
    assert title not in [item.text for item in match_palette_items(offered, "")]


def test_the_request_is_found_by_its_name_and_nothing_leaves_the_computer_instead(
    window: MainWindow,
) -> None:
    """The defect: ">show the request" and Return opened a pull request."""
    palette = window.palette_box
    palette.open_palette(">show the request")
    first = palette.list.currentIndex().data(Qt.ItemDataRole.DisplayRole)
    assert first == "Show the request"


@pytest.mark.parametrize(
    "words",
    [">show the pull", ">push everything away", ">a request for me", "a pull for me", "> sh ur h"],
)
def test_an_action_without_the_words_is_not_chosen_by_return(
    window: MainWindow, words: str
) -> None:
    palette = window.palette_box
    palette.open_palette(words)
    chosen = palette.list.currentIndex().data(Qt.ItemDataRole.DisplayRole)
    assert chosen not in {"Push the branch", "Open a pull request…", "Move conversation to trash"}


def test_recording_is_found_by_its_name() -> None:
    """The defect: whoever searched for "record" found a page on savings, and not the
    dialog that turns the recorder on.
    """
    finds = [PaletteItem(action.title, print, note=action.id) for action in declare_actions()]
    assert [find.note for find in match_palette_items(finds, "record")] == ["bring-in"]


def test_each_disabled_action_says_why(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a second window, 15 actions were grey and nothing said why."""

    def reasons_by_title() -> dict[str, str]:
        window.window_actions.update_enabled()
        reasons: dict[str, str] = {}
        for name in window.window_actions._conditions:
            action = window.window_actions[name]
            reason = window.window_actions.reason_why_disabled(name)
            assert bool(reason) != action.isEnabled(), name
            if reason:
                reasons[action.text()] = reason
        return reasons

    at_first = reasons_by_title()
    assert at_first["Stop the agent"] == "The agent is not working."
    assert at_first["Close this pane"] == "No other conversation is open to the side."
    assert "Export conversation…" not in at_first
    # A workspace that another process has open has a line to it.
    monkeypatch.setattr(bench, "line", object(), raising=False)
    in_second_window = reasons_by_title()
    elsewhere = "This is done where the workspace was opened first: in another window, or on the other computer."
    assert in_second_window["Export conversation…"] == elsewhere
    assert in_second_window["Share this workspace…"] == elsewhere
    assert list(in_second_window.values()).count(elsewhere) > 10
    window.showing.conversation = None
    without_conversation = reasons_by_title()
    assert without_conversation["Rename conversation"].startswith("Open a conversation first")
    window.showing.workspace = None
    assert reasons_by_title()["Attach files…"] == "Open a folder as a workspace first."
