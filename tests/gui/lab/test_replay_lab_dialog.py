"""The replay lab as a person uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QImage, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QPushButton, QWidget

from helix_desktop.gui.colour_tokens import LIGHT
from helix_desktop.gui.lab.replay_lab_dialog import ReplayLabDialog
from helix_desktop.gui.lab.replay_results import ReplayResultsPanel
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


def said(lab: ReplayLabDialog) -> str:
    QApplication.processEvents()  # what was just added to a layout shows then
    return "\n".join(label.text() for label in lab.findChildren(QLabel) if not label.isHidden())


def test_policies_are_played_side_by_side_and_one_is_taken_over(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    lab.resize(1200, 400)
    QApplication.processEvents()
    middles = {each.geometry().center().y() for each in (*lab.checks.values(), lab.window_, lab.run_)}
    assert max(middles) - min(middles) <= 1, "on one line"
    lab.checks["none"].setChecked(False)
    lab.window_.setCurrentIndex(0)
    QTest.mouseClick(lab.run_, Qt.MouseButton.LeftButton)
    (wanted,) = program.played
    assert (list(wanted.conversations), wanted.window) == ([story.CONVERSATION], 32_000)
    assert list(wanted.policies) == ["helix", "observational", "layered", "keeps_most"]
    for words in ("Observational policy", "90K", "100%", "markers 3"):
        assert words in said(lab)
    assert lab.results is not None
    assert lab.results.answer.text().startswith(
        "Helix policy would have cost the least here: 50% of sending everything"
    )
    take = next(each for each in lab.findChildren(QPushButton) if each.accessibleName().endswith("Helix policy"))
    take.click()
    assert bench.policy_name == "helix"
    assert "This workspace now uses: Helix policy." in said(lab)
    assert window.context_panel.policy.text() == "Helix policy ▾"


def test_nothing_chosen_is_said(window: MainWindow, program: FakeInstallation) -> None:
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    for check in lab.checks.values():
        check.setChecked(False)
    QTest.mouseClick(lab.run_, Qt.MouseButton.LeftButton)
    assert program.played == []
    assert "Choose a conversation and a policy." in said(lab)


@pytest.fixture
def results(window: MainWindow, program: FakeInstallation) -> ReplayResultsPanel:
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    QTest.mouseClick(lab.run_, Qt.MouseButton.LeftButton)
    QApplication.processEvents()
    assert lab.results is not None
    return lab.results


def test_the_plot_tells_the_step_under_the_pointer_and_that_of_the_keys(results: ReplayResultsPanel) -> None:
    lines = results.lines
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


def test_each_policy_is_drawn_in_its_colour(results: ReplayResultsPanel, theme: Theme) -> None:
    for scheme in ("light", "dark"):
        theme.set_look(scheme, theme.text_zoom)
        drawn = colours(results.lines.grab().toImage())  # all of the same course: the last lies on the others
        assert theme.colour_of_policy("none").name() in drawn


def test_another_conversation_is_plotted(results: ReplayResultsPanel) -> None:
    results.which.setCurrentIndex(1)
    assert (results.lines._first, results.lines._last) == (0.0, 1.0)
    assert results.lines.words_at(1).startswith("Step 2 of 2")


def test_the_page_is_saved_where_the_user_says(window: MainWindow, results: ReplayResultsPanel, tmp_path: Path) -> None:
    results.save.click()
    (dialog,) = window.findChildren(QFileDialog)
    dialog.filesSelected.emit([str(tmp_path / "mine.html")])
    assert (tmp_path / "mine.html").read_text("utf-8") == "<html>the page</html>"
    (lab,) = window.findChildren(ReplayLabDialog)
    assert "Saved as mine.html." in said(lab)


def test_a_page_that_cannot_be_saved_is_said(window: MainWindow, results: ReplayResultsPanel, tmp_path: Path) -> None:
    results.save.click()
    (dialog,) = window.findChildren(QFileDialog)
    dialog.filesSelected.emit([str(tmp_path / "missing" / "mine.html")])
    (lab,) = window.findChildren(ReplayLabDialog)
    assert "Couldn't write" in said(lab)


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


def test_the_window_is_that_of_the_model_the_conversation_has(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    newest = bench.list_conversations()[0]
    bench.rows[newest.id] = replace(bench.rows[newest.id], window=40_960)
    lab = ReplayLabDialog(
        bench, [("layered", "Layered")], program.replay_policies, window.background_runner, print, window.theme, window
    )
    assert lab.window_.currentData() == 40_960
    lab.close()
