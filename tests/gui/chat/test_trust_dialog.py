"""A project's own rules are shown before they are followed."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QPlainTextEdit, QPushButton

from helix_desktop.gui.chat.trust_dialog import TrustDialog
from helix_desktop.gui.dialogs_and_notifications import DialogsAndNotifications
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.project.project_item import ProjectItem
from tests.gui.fake_desk import FakeDesk
from tests.gui.test_dialogs_and_notifications import front, setup

__all__ = ["front", "setup"]


def test_rules_are_shown_before_they_are_followed(
    front: DialogsAndNotifications, window: MainWindow, desk: FakeDesk
) -> None:
    parser = desk.benches["parser"]
    rules = ProjectItem("rules", "AGENTS.md", Path("/x/AGENTS.md"), "Never push.\u202e", "")
    parser.rules = [rules]
    front._announce_untrusted_files_once(parser, parser.rules)
    assert window.notices.shown_text == ""
    window.workspaces.go_to_workspace("parser")
    front._announce_untrusted_files_once(parser, parser.rules)
    assert window.notices.shown_text == "The rules in AGENTS.md are used only after you trust them."
    window.notices.run_notice_action()
    dialog = window.findChildren(TrustDialog)[0]
    assert dialog.findChildren(QPlainTextEdit)[0].toPlainText() == "Never push.⟨202E⟩"
    next(each for each in dialog.findChildren(QPushButton) if each.text() == "Trust").click()
    assert parser.trusted == [rules]


def test_the_question_about_rules_stays_until_it_is_answered(
    front: DialogsAndNotifications, window: MainWindow, desk: FakeDesk
) -> None:
    """The defect: it went by itself after half a minute, and never came again, so whoever
    looked elsewhere had never been asked.
    """
    parser = desk.benches["parser"]
    rules = ProjectItem("rules", "AGENTS.md", Path("/x/AGENTS.md"), "Never push.", "")
    parser.rules = [rules]
    question = "The rules in AGENTS.md are used only after you trust them."
    window.workspaces.go_to_workspace("parser")
    front._announce_untrusted_files_once(parser, parser.rules)
    assert window.notices.shown_text == question
    assert not window.notices._timer.isActive()
    window.workspaces.go_to_workspace("storage-engine")
    assert window.notices.shown_text != question
    window.workspaces.go_to_workspace("parser")
    front._announce_untrusted_files_once(parser, parser.rules)
    assert window.notices.shown_text == question
    window.notices._close.click()
    window.workspaces.go_to_workspace("storage-engine")
    window.workspaces.go_to_workspace("parser")
    front._announce_untrusted_files_once(parser, parser.rules)
    assert window.notices.shown_text != question, "it was dismissed"
