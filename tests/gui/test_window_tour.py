"""The tour begins in a workspace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.errors import StoreFailed
from helix_desktop.gui.dialogs_and_notifications import DialogsAndNotifications
from helix_desktop.gui.frame.tour_card import TourStepCard
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.test_dialogs_and_notifications import front, setup

__all__ = ["front", "setup"]


def test_the_tour_has_a_workspace_of_its_own_and_says_nothing_for_the_user(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    window.notices.show_notice("The message was removed.", act=lambda: None)
    window.window_actions["tour"].trigger()
    assert window.current_workbench is not None
    assert window.current_workbench.name == "Tour"
    assert window.current_session is None
    assert window.chat.composer.text.toPlainText() == ""
    assert window.notices.shown_text == ""
    window.window_actions["tour"].trigger()
    assert len(window.findChildren(TourStepCard)) == 1


def test_a_tour_that_cannot_begin_says_why(
    front: DialogsAndNotifications, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_desk: object, _folder: Path) -> FakeWorkbench:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(front._installation, "open_tour_workbench", breaks)
    window.window_actions["tour"].trigger()
    assert window.notices.shown_text == "The disk is full."
    assert window.findChildren(TourStepCard) == []


def test_the_tour_has_the_same_total_where_a_step_is_left_out_because_nothing_can_be_undone(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    window.window_actions["tour"].trigger()
    (card,) = window.findChildren(TourStepCard)
    numbers = [card.number.text()]
    while card.title.text() != "Connect a model" and len(numbers) < 9:
        card.next.click()
        numbers.append(card.number.text())
    assert numbers == [
        "Step 1 of 6",
        "Step 2 of 6",
        "Step 3 of 6",
        "Step 4 of 6",
        "Step 6 of 6",
    ]
    card.back.click()
    assert card.number.text() == "Step 4 of 6"
