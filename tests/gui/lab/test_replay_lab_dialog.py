"""The replay lab as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QImage, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from helix_desktop.gui.colour_tokens import LIGHT
from helix_desktop.gui.lab.replay_lab_dialog import ReplayLabDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.shared.step_plot import compute_axis_ticks
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.window_services import WindowServices
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench, now
from tests.gui.fake_setup import FakeInstallation, FakeSetup


@pytest.fixture
def program(window: MainWindow, tmp_path: Path) -> FakeInstallation:
    made = FakeInstallation()
    WindowServices(window, FakeSetup(), made, tmp_path / "tour", now)
    return made


@pytest.fixture
def lab(window: MainWindow, program: FakeInstallation) -> ReplayLabDialog:
    window.window_actions["lab"].trigger()
    (found,) = window.findChildren(ReplayLabDialog)
    QApplication.processEvents()
    return found


def said(lab: ReplayLabDialog) -> str:
    QApplication.processEvents()  # what was just added to a layout shows then
    return "\n".join(label.text() for label in lab.findChildren(QLabel) if not label.isHidden())


def test_policies_are_played_side_by_side_and_one_is_taken_over(
    lab: ReplayLabDialog, window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    policies = ["helix", "observational", "layered", "keeps_most", "none"]
    assert program.played == [(story.CONVERSATION, policies, bench.rows[story.CONVERSATION].window)]
    assert lab.answer.text().startswith("Helix policy would have cost the least here: 50% of sending everything")
    assert "Observational policy" in said(lab)
    take = next(each for each in lab.findChildren(QPushButton) if each.accessibleName().endswith("Helix policy"))
    take.click()
    assert bench.policy_name == "helix"
    assert "This workspace now uses: Helix policy." in said(lab)
    assert window.context_panel.policy.text() == "Helix policy ▾"


def test_a_replay_that_fails_says_why(window: MainWindow, program: FakeInstallation) -> None:
    program.replay_error = "The replay failed: no space left"
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    assert "The replay failed: no space left" in said(lab)
    assert not lab.curves.isVisible()


def test_a_workspace_without_a_conversation_has_nothing_to_replay(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.rows.clear()
    window.window_actions["lab"].trigger()
    assert program.played == []
    assert "no conversation to replay yet" in window.notices.shown_text


def test_the_plot_tells_the_step_under_the_pointer_and_that_of_the_keys(lab: ReplayLabDialog) -> None:
    lines = lab.curves
    assert words_drawn(lines) == 0
    place = QPointF(lines.width() - 2, 60)
    none, no_button = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.NoButton
    move = QMouseEvent(QEvent.Type.MouseMove, place, lines.mapToGlobal(place), no_button, no_button, none)
    QApplication.sendEvent(lines, move)
    words = lines.words_at(lines._hover).splitlines()
    assert words[0] == "Step 4 of 4"
    assert "Helix policy: 12K tokens · markers" in words
    assert words_drawn(lines) > 20  # how many depends on the fonts of the machine
    lines.setFocus()
    QTest.keyClick(lines, Qt.Key.Key_Home)
    assert lines._hover == 0
    QTest.keyClick(lines, Qt.Key.Key_Right)
    assert lines.accessibleDescription().startswith("Step 2 of 4\nHelix policy: 9K tokens")
    QTest.keyClick(lines, Qt.Key.Key_Left)
    QTest.keyClick(lines, Qt.Key.Key_Left)
    assert lines.accessibleDescription().startswith("Step 1 of 4")


def test_each_policy_is_drawn_in_its_colour(lab: ReplayLabDialog, theme: Theme) -> None:
    for scheme in ("light", "dark"):
        theme.set_look(scheme, theme.text_zoom)
        drawn = colours(lab.curves.grab().toImage())  # all of the same course: the last lies on the others
        assert theme.colour_of_policy("none").name() in drawn


@pytest.mark.parametrize("top", [3, 40, 999, 21_000, 1_234_567])
def test_the_scale_has_a_few_round_numbers(top: int) -> None:
    found = compute_axis_ticks(top)
    assert 1 <= len(found) <= 7
    assert all(0 < each <= top for each in found)


def words_drawn(widget: QWidget) -> int:
    """Pixels in the colour of text."""
    image = widget.grab().toImage()
    places = ((x, y) for x in range(image.width()) for y in range(image.height()))
    return sum(image.pixelColor(x, y).name() == LIGHT.text for x, y in places)


def colours(image: QImage) -> set[str]:
    return {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}
