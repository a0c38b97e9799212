"""The replay lab as a person uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from helix_desktop.engine.facts import ModelRole, ModelSet, Usage
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.dialogs_and_notifications import DialogsAndNotifications
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.replay_lab.model_costs import SentRequests
from helix_desktop.gui.replay_lab.replay_lab_dialog import (
    ReplayLabDialog,
    ReplayProgress,
    describe_replay_progress,
)
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench, now
from tests.gui.fake_setup import QWEN, SONNET, FakeInstallation, FakeSetup
from tests.turns import qt_works


@pytest.fixture
def program(window: MainWindow, tmp_path: Path) -> FakeInstallation:
    made = FakeInstallation()
    DialogsAndNotifications(window, FakeSetup(), made, tmp_path / "tour", now)
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


def offered(lab: ReplayLabDialog) -> list[str]:
    """The policies that have a button to use them."""
    return [name for name, button in lab._adopting.items() if button.isEnabled()]


def test_it_is_closed_by_a_button(lab: ReplayLabDialog) -> None:
    (close,) = (each for each in lab.findChildren(QPushButton) if each.text() == "Close")
    close.click()
    assert not lab.isVisible()


def test_policies_are_played_side_by_side_and_one_is_taken_over(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    lab = lab_of_paid_conversation(window, bench)
    window_size = format_token_count(bench.rows[story.CONVERSATION].window)
    compared = "Each line is the same conversation with another setting for long conversations"
    assert f"{compared}, in a context window of {window_size} tokens." in said(lab)
    policies = ["helix", "observational", "layered", "keeps_most", "none"]
    assert program.played == [
        ([story.CONVERSATION], policies, bench.rows[story.CONVERSATION].window)
    ]
    assert lab.answer.text() == (
        "“Old outputs first” would have cost the least here: about $0.099 instead of $0.118."
    )
    assert "Dated notes" in said(lab)
    assert set(offered(lab)) == {each for each in policies if each != bench.policy_name}
    assert [button.text() for button in lab._adopting.values()].count("in use") == 1
    take = next(
        each
        for each in lab.findChildren(QPushButton)
        if each.accessibleName().endswith("Old outputs first")
    )
    take.click()
    assert bench.policy_name == "helix"
    assert set(offered(lab)) == set(policies[1:])
    assert "This workspace now uses: Old outputs first." in said(lab)
    window.context_panel_opener.toggle_context_panel()
    assert window.context_panel.policy.text() == "Old outputs first ▾"


def lab_of_paid_conversation(window: MainWindow, bench: FakeWorkbench) -> ReplayLabDialog:
    bench.rows[story.CONVERSATION] = replace(bench.rows[story.CONVERSATION], cost=0.1184)
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    QApplication.processEvents()
    return lab


def test_money_stands_in_the_lab_as_in_the_meter_where_something_was_paid(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    lab = lab_of_paid_conversation(window, bench)
    cells = [label.text() for label in lab.findChildren(QLabel)]
    assert len([words for words in cells if words.startswith("≈ $")]) == 4
    name = lab._names[bench.policy_name]
    assert cells[cells.index(name) + 2] == "$0.118", "as many digits as in the meter"
    assert cells[cells.index(lab._names["helix"]) + 2] == "≈ $0.099, 17% less"
    assert cells[cells.index(lab._names["none"]) + 2] == "≈ $0.118, about the same"


def test_the_lab_says_first_what_shortening_saved_as_the_meter_does(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """The meter said 26 %, the lab 100 % of what it did not say."""
    lab = lab_of_paid_conversation(window, bench)
    window.context_panel_opener.toggle_context_panel()
    sentences = [
        line
        for line in window.context_panel.figures.all_text().splitlines()
        if "Saved about" in line
    ]
    assert sentences
    assert set(sentences) <= set(said(lab).splitlines())


def test_figures_of_the_machinery_are_behind_details(lab: ReplayLabDialog) -> None:
    assert "In view" not in said(lab)
    assert "Peak" not in said(lab)
    lab._details_button.click()
    assert "In view" in said(lab)
    assert "Peak: the largest request that was sent" in said(lab)


def test_a_preset_that_costs_as_much_as_the_one_in_use_is_not_called_cheaper(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    program.cheapest = ["helix", bench.policy_name]
    lab = lab_of_paid_conversation(window, bench)
    assert bench.policy_name != "helix"
    assert lab.answer.text() == "No other setting would have cost less here."


def test_a_preset_whose_requests_would_have_been_refused_is_neither_cheap_nor_compared_with(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    program.cheapest = ["none"]
    program.peaks = {"none": 6.47}
    lab = lab_of_paid_conversation(window, bench)
    assert lab.answer.text() == "No other setting would have cost less here."
    assert "the conversation ends.\ntoo long: 647% of the context window" in said(lab)
    assert "none" not in offered(lab), "nobody is offered what would not have fit"
    lab._details_button.click()
    assert "647%" in said(lab)


def test_where_every_setting_would_be_too_long_nothing_is_compared(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """Five lines said "would not have fit", one of them "in use", about a conversation that was
    there, 45% full: its window had been made smaller.
    """
    program.peaks = dict.fromkeys(["helix", "observational", "layered", "keeps_most", "none"], 2.59)
    lab = lab_of_paid_conversation(window, bench)
    assert "cannot be compared here" in lab.answer.text()
    assert "in use" not in said(lab)
    assert "too long:" not in said(lab)
    lab._show_sent_requests(SentRequests((Usage(input=9_000),), windows=(8_200,)))
    assert "Its context window was 8.2K before" in said(lab)


def test_the_setting_in_use_is_not_called_too_long_without_why(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    program.peaks = {bench.policy_name: 2.59}
    lab = lab_of_paid_conversation(window, bench)
    assert "too long in a simulation of all of it: 259% of the context window" in said(lab)


def test_with_a_price_but_nothing_paid_tokens_are_compared(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """Only shares of something unnamed stood there."""
    bench.rows[story.CONVERSATION] = replace(bench.rows[story.CONVERSATION], cost=0.0)
    bench.models.chosen = [ModelSet(ModelRole.MAIN, "own/scripted", 32_000, price_input=3.0)]
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    QApplication.processEvents()
    assert "No request from Helix Desktop has been paid here yet" in said(lab)
    assert_tokens_are_compared(lab)


def test_the_policy_page_compares_the_last_conversations(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    for name, row in list(bench.rows.items()):
        bench.rows[name] = replace(row, cost=0.24)
    window.window_actions["settings"].trigger()
    (settings,) = window.findChildren(SettingsDialog)
    settings.show_settings_page("policy")
    asked = "What would each have cost in my recent conversations?"
    next(each for each in settings.findChildren(QPushButton) if each.text() == asked).click()
    qt_works(1)
    assert len(program.played) == 1, "the costs stand beside the choices"
    table = "Compare in a table…"
    next(each for each in settings.findChildren(QPushButton) if each.text() == table).click()
    (lab,) = window.findChildren(ReplayLabDialog)
    newest = sorted(
        (row for row in bench.rows.values() if not row.trashed), key=lambda row: -row.updated
    )
    _, (played, policies, _window) = program.played
    assert played == [row.id for row in newest if not row.parent][:5]
    assert len(played) > 1
    assert "keeps_most" in policies
    assert (
        f"In your last {len(played)} conversations, “Old outputs first” would have cost the least: "
        f"about $1.00 instead of $1.20." in said(lab)
    )


def test_a_replay_that_fails_says_why(window: MainWindow, program: FakeInstallation) -> None:
    program.replay_error = "The replay failed: no space left"
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    assert "The replay failed: no space left" in said(lab)
    program.replay_error = ""
    button(lab, "Try again").click()
    QApplication.processEvents()
    assert len(program.played) == 2
    assert "“Old outputs first”" in lab.answer.text()


def test_the_seconds_are_counted_also_before_the_first_setting_was_tried() -> None:
    """A bar without an end and one sentence stood there while a busy computer started it."""
    progress = ReplayProgress(started_at=100.0)
    assert describe_replay_progress(progress, 100.4) == "Reading what was said…"
    assert describe_replay_progress(progress, 109.2) == "Reading what was said… · 9 s"
    progress.total = 5
    assert describe_replay_progress(progress, 175.0) == (
        "Trying each setting: 0 of 5 done · 1 min 15 s"
    )


def test_a_replay_that_was_stopped_can_be_begun_again(
    lab: ReplayLabDialog, program: FakeInstallation
) -> None:
    lab._stop_replay()
    assert lab.answer.text() == "Stopped. Nothing was changed."
    assert lab._bar.isHidden()
    button(lab, "Try again").click()
    QApplication.processEvents()
    assert len(program.played) == 2
    assert "Nothing was changed" not in lab.answer.text()


def test_where_all_settings_come_to_the_same_that_is_the_answer(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    program.cheapest = []
    lab = lab_of_paid_conversation(window, bench)
    assert lab.answer.text() == "With every setting, it would have come to about the same."


def button(lab: ReplayLabDialog, words: str) -> QPushButton:
    return next(each for each in lab.findChildren(QPushButton) if each.text() == words)


def test_a_workspace_without_a_conversation_has_nothing_to_replay(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.rows.clear()
    window.window_actions["lab"].trigger()
    assert program.played == []
    assert "no conversation to replay yet" in window.notices.shown_text


def test_without_a_price_nothing_is_called_cheap(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    """The defect: "No other preset would have cost less" stood there for a model without a price."""
    bench.models.chosen = [ModelSet(ModelRole.MAIN, "own/scripted", 32_000)]
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    QApplication.processEvents()
    assert "No price is known" in said(lab)
    assert "cost less" not in lab.answer.text()
    assert_tokens_are_compared(lab)


def assert_tokens_are_compared(lab: ReplayLabDialog) -> None:
    cells = [label.text() for label in lab.findChildren(QLabel)]
    assert "Cost" not in cells
    assert "Sent" in cells
    assert cells[cells.index(lab._names["helix"]) + 2] == "≈ 90K tokens, 25% less"
    assert cells[cells.index(lab._names["layered"]) + 2] == "120K tokens"


def test_for_a_free_model_tokens_are_compared_and_the_answer_says_so(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    bench.models.chosen = [ModelSet(ModelRole.MAIN, "own/scripted", 32_000, is_free=True)]
    window.window_actions["lab"].trigger()
    (lab,) = window.findChildren(ReplayLabDialog)
    QApplication.processEvents()
    assert "costs nothing as far as is known" in said(lab)
    assert lab.answer.text() == (
        "“Old outputs first” would have sent the least to the model: "
        "about 90K tokens instead of 120K tokens."
    ), "why tokens are compared stood in the answer's place"
    assert_tokens_are_compared(lab)


def test_the_same_requests_are_priced_for_another_model(lab: ReplayLabDialog) -> None:
    """Only settings could be compared, no models."""
    QApplication.processEvents()
    lab._show_sent_requests(SentRequests((Usage(input=1_000_000, cache_read=0, output=100_000),)))
    assert lab._model_panel.isVisible()
    lab._paid = 9.0
    lab._model_box.setCurrentIndex(lab._model_box.findData(SONNET.name))
    # The fake's window is 200K, and no request is longer than a model's window.
    assert "had to be shortened more" in lab._model_answer.text()
    lab._show_sent_requests(SentRequests((Usage(input=100_000, output=10_000),) * 2))
    lab._show_cost_with_model()
    expected = "The same 2 requests would have cost $0.900 with claude-sonnet, instead of $9.00."
    assert lab._model_answer.text().startswith(expected)
    lab._model_box.setCurrentIndex(lab._model_box.findData(QWEN.name))
    lab._show_sent_requests(SentRequests((Usage(input=1_000),)))
    lab._show_cost_with_model()
    assert lab._model_answer.text().startswith("The same request would have been free")
    lab._model_box.setCurrentIndex(0)
    assert lab._model_answer.isHidden()
