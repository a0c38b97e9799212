from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from helix_desktop.errors import NotFound
from helix_desktop.gui.frame.notices import NOTICE_MS, Notices
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.theme import Theme


def test_a_notice_can_be_undone_once(theme: Theme) -> None:
    parent = QWidget()
    undone = list[str]()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    notices.show_notice("It is in the trash.", act=lambda: undone.append("undone"))
    assert notices.shown_text == "It is in the trash."
    QTest.mouseClick(notices._button, Qt.MouseButton.LeftButton)
    notices.run_notice_action()
    assert undone == ["undone"]
    assert notices.shown_text == ""


def test_the_newest_wins_and_an_error_says_what_to_do(theme: Theme) -> None:
    parent = QWidget()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent, lambda: 100)
    notices.show_notice("Saved.", act=lambda: None)
    notices.show_error_notice(NotFound("It is gone.", remedy="Look in the trash."))
    assert notices.shown_text == "It is gone. Look in the trash."
    assert not notices._button.isVisible()
    assert notices.geometry().bottom() <= 300


def test_what_is_offered_to_be_read_comes_back_after_a_newer_notice(theme: Theme) -> None:
    """What opening a workspace had to mend is not covered for good by a rules file that
    is found a moment later.
    """
    parent = QWidget()
    done = list[str]()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    notices.show_notice("It was mended.", button="Read", act=lambda: done.append("mended"))
    notices.show_notice("There are rules.", button="Read", act=lambda: done.append("rules"))
    notices.show_notice("Saved.")
    notices._close_notice_unless_in_use()
    assert notices.shown_text == "There are rules."
    notices.run_notice_action()
    assert notices.shown_text == "It was mended."
    QTest.mouseClick(notices._close, Qt.MouseButton.LeftButton)
    assert (notices.shown_text, done) == ("", ["rules"])


def test_a_notice_that_stays_goes_only_when_the_user_says_so(theme: Theme) -> None:
    parent = QWidget()
    dismissed = list[str]()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    notices.show_notice(
        "There are rules.",
        button="Read",
        act=lambda: None,
        shown_ms=None,
        when_dismissed=lambda: dismissed.append("rules"),
    )
    assert not notices._timer.isActive()
    notices.show_notice("Saved.")
    notices._close_notice_unless_in_use()
    assert notices.shown_text == "There are rules."
    assert not notices._timer.isActive(), "also after it was covered for a moment"
    assert dismissed == []
    QTest.mouseClick(notices._close, Qt.MouseButton.LeftButton)
    assert (notices.shown_text, dismissed) == ("", ["rules"])


def test_what_was_offered_goes_with_its_workspace_and_an_undo_stays(theme: Theme) -> None:
    parent = QWidget()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    notices.show_notice("Its folder is gone.", button="Choose a folder…", act=lambda: None)
    notices.show_notice("There are rules.", button="Read", act=lambda: None)
    notices.discard_offers()
    assert notices.shown_text == ""
    notices.show_notice("It is in the trash.", act=lambda: None)
    notices.discard_offers()
    assert notices.shown_text == "It is in the trash."


def test_errors_of_one_moment_stand_together_and_a_later_one_alone(theme: Theme) -> None:
    parent = QWidget()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    for name in ("a", "b", "a"):
        notices.show_error_notice(NotFound(f"{name} is gone."))
    assert notices.shown_text == "b is gone.\na is gone."
    for number in range(6):
        notices.show_error_notice(NotFound(f"{number} is gone."))
    assert (
        notices.shown_text
        == "Earlier errors not shown here: 4\n2 is gone.\n3 is gone.\n4 is gone.\n5 is gone."
    )
    notices.show_notice("Saved.")
    notices.show_error_notice(NotFound("c is gone."))
    assert notices.shown_text == "c is gone."


def test_an_undo_comes_back_after_an_error_of_something_else_and_its_shortcut_means_no_other_offer(
    theme: Theme,
) -> None:
    parent = QWidget()
    done = list[str]()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    notices.show_notice("It is here.", button="Choose a folder…", act=lambda: done.append("chosen"))
    notices.show_notice("It is in the trash.", act=lambda: done.append("undone"))
    notices.show_error_notice(NotFound("The server is gone."))
    notices.run_notice_undo()
    assert (notices.shown_text, done) == ("It is in the trash.", [])
    notices.run_notice_undo()
    notices.run_notice_undo()
    assert (notices.shown_text, done) == ("It is here.", ["undone"])
    notices.show_notice("It is in the archive.", act=lambda: done.append("back"))
    notices.show_notice("It is in the trash.", act=lambda: None)
    notices.run_notice_action()
    assert (notices.shown_text, done) == ("It is here.", ["undone"])


def test_a_long_hash_wraps(theme: Theme) -> None:
    """The notice about a discarded copy was cut at its right edge."""
    parent = QWidget()
    parent.resize(800, 400)
    parent.show()
    notices = Notices(theme, parent)
    text = f"The copy's changes are stored in the cache as {'8fe3' * 16}, a bundle."
    notices.show_notice(text)
    theme.set_zoom(2.0)
    notices.show_notice(text)
    assert notices.shown_text == text
    assert notices._text.minimumSizeHint().width() <= notices.width() - notices._close.width()
    theme.set_zoom(1.0)


def test_a_notice_says_how_much_room_it_takes_until_it_goes(theme: Theme) -> None:
    """It stood above the newest answer."""
    parent = QWidget()
    parent.resize(800, 400)
    rooms = list[int]()
    notices = Notices(theme, parent, lambda: 100)
    parent.show()
    notices.room_changed.connect(rooms.append)
    for shown_ms, stays in ((NOTICE_MS, False), (None, True)):
        notices.show_notice("Something", button="Review", act=rooms.clear, shown_ms=shown_ms)
        assert rooms[-1] >= 400 - 100 - notices.geometry().top()
        assert notices.stays_until_answered is stays
        notices.hide()
        assert rooms[-1] == 0


def test_the_second_half_of_a_double_click_presses_nothing(theme: Theme) -> None:
    """The button of the next notice, which takes back what the first one did, stood there."""
    parent = QWidget()
    notices = Notices(theme, parent)
    parent.show()
    done: list[str] = []

    def redo() -> None:
        done.append("redone")
        notices.show_notice("It was redone.", button="Undo", act=partial(done.append, "undone"))

    notices.show_notice("It was undone.", button="Redo", act=redo)
    QTest.mouseClick(notices._button, Qt.MouseButton.LeftButton)
    QTest.mouseDClick(notices._button, Qt.MouseButton.LeftButton)
    assert done == ["redone"]
    QTest.mouseClick(notices._button, Qt.MouseButton.LeftButton)
    assert done == ["redone", "undone"]


def test_a_notice_that_stays_covers_nothing_of_another_page(window: MainWindow) -> None:
    """It stood above the lowest lines of Cache."""
    window.show()
    window.switch_to_page("cache")
    window.notices.show_notice("There are rules.", button="Review", act=str, shown_ms=None)
    bottom = window.page_area.contentsMargins().bottom()
    assert bottom >= window.notices.height()
    window.switch_to_page("chat")
    assert window.page_area.contentsMargins().bottom() == 0
    window.switch_to_page("cache")
    assert window.page_area.contentsMargins().bottom() == bottom
    window.notices.run_notice_action()
    assert window.page_area.contentsMargins().bottom() == 0
