"""The replay lab as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from helix_desktop.gui.frame.front import Front
from helix_desktop.gui.lab import Lab
from helix_desktop.gui.main_window import MainWindow
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench, now
from tests.gui.fake_setup import FakeInstallation, FakeSetup


@pytest.fixture
def program(window: MainWindow, tmp_path: Path) -> FakeInstallation:
    made = FakeInstallation()
    Front(window, FakeSetup(), made, tmp_path / "tour", now)
    return made


def said(lab: Lab) -> str:
    QApplication.processEvents()  # what was just added to a layout shows then
    return "\n".join(label.text() for label in lab.findChildren(QLabel) if not label.isHidden())


def test_policies_are_played_side_by_side_and_one_is_taken_over(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    window.actions_["lab"].trigger()
    (lab,) = window.findChildren(Lab)
    lab.checks["none"].setChecked(False)
    lab.window_.setCurrentIndex(0)
    QTest.mouseClick(lab.run_, Qt.MouseButton.LeftButton)
    (wanted,) = program.played
    assert (list(wanted.conversations), wanted.window) == ([story.CONVERSATION], 32_000)
    assert list(wanted.policies) == ["helix", "observational", "layered"]
    for words in ("Observational policy", "50%", "80%", "3 marker"):
        assert words in said(lab)
    take = next(each for each in lab.findChildren(QPushButton) if each.accessibleName().endswith("Helix policy"))
    take.click()
    assert bench.policy == "helix"
    assert "Helix policy is this workspace's policy now." in said(lab)
    assert window.top.policy.text() == "Helix policy ▾"


def test_nothing_chosen_is_said(window: MainWindow, program: FakeInstallation) -> None:
    window.actions_["lab"].trigger()
    (lab,) = window.findChildren(Lab)
    for check in lab.checks.values():
        check.setChecked(False)
    QTest.mouseClick(lab.run_, Qt.MouseButton.LeftButton)
    assert program.played == []
    assert "Choose a conversation and a policy." in said(lab)
