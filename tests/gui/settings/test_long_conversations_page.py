from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDoubleSpinBox, QLabel, QPushButton, QRadioButton

from helix_desktop.engine.context_policy import PRESETS
from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.policy_names import list_named_presets, list_plain_choices
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.long_conversations_page import LongConversationsPage
from helix_desktop.gui.translation import format_count
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import FakeInstallation
from tests.turns import qt_works

INNER_WORDS = ("fold", "marker", "observation", "reflection", "layered", "handover", "policy", "journal", "entry")  # fmt: skip


@pytest.fixture
def page(window: MainWindow, bench: FakeWorkbench) -> LongConversationsPage:
    return LongConversationsPage(bench, window.background_runner)


def said(page: LongConversationsPage) -> str:
    words = [label.text() for label in page.page_content.findChildren(QLabel)]
    words += [button.text() for button in page.page_content.findChildren(QRadioButton)]
    return "\n".join(words)


def choice(page: LongConversationsPage, title: str) -> QRadioButton:
    buttons = page.page_content.findChildren(QRadioButton)
    return next(button for button in buttons if button.text() == title)


def test_every_preset_is_one_choice() -> None:
    choices = [*list_plain_choices(), *list_named_presets()]
    assert sorted(each.preset for each in choices) == sorted(PRESETS)


def test_three_choices_are_in_plain_words(page: LongConversationsPage) -> None:
    assert [each.title for each in list_plain_choices()] == [
        "Cheapest",
        "Keep more",
        "Leave everything",
    ]
    shown = said(page).casefold().replace("observational memory", "")  # The system's own name.
    assert [word for word in INNER_WORDS if word in shown] == []


def test_the_choice_in_force_is_marked_and_another_is_saved(
    page: LongConversationsPage, bench: FakeWorkbench
) -> None:
    assert choice(page, "Cheapest").isChecked()
    choice(page, "Keep more").click()
    assert (bench.workspace.settings.preset, bench.workspace.settings.policy) == ("keeps_most", {})
    assert choice(page, "Keep more").isChecked()


def test_what_the_file_changes_is_named_and_can_be_taken_back(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.workspace.settings.policy = {"handover_share": 0.7}
    page = LongConversationsPage(bench, window.background_runner)
    assert "Changed in the settings file: handover_share" in said(page)
    buttons = page.page_content.findChildren(QPushButton)
    reset = next(each for each in buttons if each.text() == "Use the choice's own values")
    QTest.mouseClick(reset, Qt.MouseButton.LeftButton)
    assert bench.workspace.settings.policy == {}


def test_limits_are_written(page: LongConversationsPage, bench: FakeWorkbench) -> None:
    cost = page.page_content.findChild(QDoubleSpinBox, "day_cost")
    assert isinstance(cost, QDoubleSpinBox)
    cost.setValue(2.5)
    assert bench.written == [("limits.day_cost", 2.5)]


def test_it_is_said_under_the_limits_that_they_cannot_act_without_a_price(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.models.chosen = [
        ModelSet(ModelRole.MAIN, "own/scripted", 32_000),
        ModelSet(ModelRole.FAST, "own/scripted", 32_000),
        ModelSet(ModelRole.LONG, "own/priced", 32_000, price_input=3.0),
    ]
    page = LongConversationsPage(bench, window.background_runner)
    words = "No price is set for own/scripted, so cost limits have no effect on this model."
    assert said(page).count(words) == 1
    assert "own/priced" not in said(page)


def test_what_each_choice_would_have_cost_stands_beside_it_when_it_is_asked_for(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    installation = FakeInstallation()
    installation.peaks = {"none": 1.2}
    for name, row in list(bench.rows.items()):
        bench.rows[name] = replace(row, cost=0.25)
    page = LongConversationsPage(bench, window.background_runner, installation.replay_policies)
    assert "Your last" not in said(page), "nothing is replayed before it is asked for"
    link = next(
        button
        for button in page.page_content.findChildren(QPushButton)
        if button.text() == "What would each have cost in my recent conversations?"
    )
    link.click()
    qt_works(1)
    ((conversations, presets, _),) = installation.played
    assert sorted(presets) == sorted(PRESETS)
    costs = {preset: label.text() for preset, label in page._cost_labels.items()}
    count = format_count(len(conversations), "{n} conversation", "{n} conversations")
    paid = sum(row.cost for row in bench.list_conversations() if row.id in conversations)
    assert paid > 0
    assert costs["layered"] == f"Your last {count}: {format_dollars(paid)}"
    assert costs["none"] == f"Your last {count}: too long: 120% of the context window"
    choice(page, "Keep more").click()
    qt_works(1)
    assert page._cost_labels["layered"].text() == costs["layered"], "they stay when one is chosen"


def test_the_three_choices_stand_beside_each_other_where_there_is_room(
    page: LongConversationsPage,
) -> None:
    page.resize(1_000, 700)
    page.show()
    qt_works(1)
    tops = {page._cards[each.preset].y() for each in list_plain_choices()}
    assert len(tops) == 1
    page.resize(420, 700)
    qt_works(1)
    tops = {page._cards[each.preset].y() for each in list_plain_choices()}
    assert len(tops) == 3
