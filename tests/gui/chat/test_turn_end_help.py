from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtTest import QSignalSpy

from helix_desktop.engine.facts import (
    FilesChanged,
    ModelReplied,
    Rewound,
    Stop,
    Stored,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.session_events import CLOSED, TEXT_CAUSE, ConversationActivity
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.chat import turn_end_help
from helix_desktop.gui.chat.turn_end_help import TurnEndHelp, TurnEndHelpLine, find_turn_end_help
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import set_translations, translation_catalogue_path
from tests.turns import qt_works


@pytest.mark.parametrize("kind", list(TurnEndHelp))
def test_with_large_text_its_buttons_leave_room_for_its_words(
    theme: Theme, monkeypatch: pytest.MonkeyPatch, kind: TurnEndHelp
) -> None:
    """The defect: at 200 % in German, the words stood beside the buttons in a column of 140
    pixels, which was as high as the window and squeezed the message box.
    """
    german = json.loads(translation_catalogue_path("de").read_text(encoding="utf-8"))
    set_translations(german)
    try:
        theme.set_zoom(2.0)
        line = TurnEndHelpLine(theme)
        monkeypatch.setattr(turn_end_help, "find_turn_end_help", lambda _session: kind)
        line.show_last_turn_end(session())
        line.resize(565, 100)
        qt_works(20)
        assert line.heightForWidth(565) <= 210
        line.resize(1_400, 100)
        qt_works(20)

        words_end = line._words.mapTo(line, line._words.rect().bottomRight())
        button_start = line._go.mapTo(line, QPoint())
        assert button_start.x() > words_end.x()
        assert button_start.y() < words_end.y()
        assert line.heightForWidth(1_400) <= 140
    finally:
        theme.set_zoom(1.0)
        set_translations({})


CUT_REPLY = ModelReplied(parts=(Text("Half of"),), model="m", stop=Stop.CUT)


def session(
    *facts: object,
    activity: ConversationActivity = ConversationActivity.IDLE,
    queue: tuple[str, ...] = (),
    is_turn_open: bool = False,
    why: str = "",
) -> Any:
    state = SimpleNamespace(
        facts=[SimpleNamespace(seq=seq, fact=fact) for seq, fact in enumerate(facts, 1)],
        branch=SimpleNamespace(turn=SimpleNamespace(running=is_turn_open)),
    )
    conversation = SimpleNamespace(state=state)
    return cast(
        "Any",
        SimpleNamespace(conversation=conversation, running=activity, queue=queue, why=why),
    )


def ended(reason: TurnEnd, why: str = "", cause: str = "") -> TurnEnded:
    return TurnEnded(reason, why=why, cause=cause)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (session(ended(TurnEnd.DONE)), None),
        (session(ended(TurnEnd.FAILED, why="No network.")), None),
        (session(ended(TurnEnd.STEP_LIMIT)), TurnEndHelp.LIMITED),
        (session(ended(TurnEnd.SPENDING_LIMIT), queue=("next",)), TurnEndHelp.LIMITED),
        (session(ended(TurnEnd.REPEATING, cause=TEXT_CAUSE)), TurnEndHelp.REPEATING),
        (session(UserSaid((Text("Hi"),)), is_turn_open=True), TurnEndHelp.BROKEN),
        (session(ended(TurnEnd.STOPPED, why=CLOSED)), TurnEndHelp.BROKEN),
        (session(ended(TurnEnd.STOPPED)), None),
        (session(ended(TurnEnd.STOPPED), queue=("next",)), TurnEndHelp.STOPPED),
        (session(ended(TurnEnd.DONE), queue=("next",)), TurnEndHelp.WAITING),
        (session(ended(TurnEnd.FAILED), queue=("next",)), None),
        (
            session(activity=ConversationActivity.FAILED, why="The disk is full."),
            TurnEndHelp.FAILED,
        ),
        (
            session(
                ended(TurnEnd.FAILED, why="No network."),
                activity=ConversationActivity.FAILED,
                why="No network.",
            ),
            None,
        ),
        (
            session(ended(TurnEnd.STEP_LIMIT), activity=ConversationActivity.THINKING),
            None,
        ),
        (None, None),
    ],
)
def test_what_the_last_turn_needs(given: Any, expected: TurnEndHelp | None) -> None:
    assert find_turn_end_help(given) is expected


def test_a_cut_reply_is_not_explained_twice_and_can_be_continued(theme: Theme) -> None:
    line = TurnEndHelpLine(theme)
    line.show_last_turn_end(session(CUT_REPLY, is_turn_open=True))
    assert not line.isHidden()
    assert line._words.text() == ""
    assert line._go.text() == "Continue"
    assert line._settings.isHidden()


DIGEST = Digest.of_content(b"x")
UNDO = FilesChanged(Stored(DIGEST, 1), DIGEST, DIGEST, 1, 3, 1, by="undo", undoes=(1,))


def test_how_a_turn_ended_stays_true_after_an_undo(theme: Theme) -> None:
    """After a kill and an undo, the same was said twice, and a limit was not explained any more."""
    line = TurnEndHelpLine(theme)
    line.show_last_turn_end(session(CUT_REPLY, UNDO, is_turn_open=True))
    assert line._words.text() == ""
    limit_and_undo = session(ended(TurnEnd.STEP_LIMIT), UNDO)
    assert find_turn_end_help(limit_and_undo) is TurnEndHelp.LIMITED
    failure_and_undo = session(
        ended(TurnEnd.FAILED, why="No network."),
        UNDO,
        activity=ConversationActivity.FAILED,
        why="No network.",
    )
    assert find_turn_end_help(failure_and_undo) is None
    assert find_turn_end_help(session(ended(TurnEnd.STEP_LIMIT), Rewound(0))) is None


def test_a_rewind_is_not_said_to_have_interrupted_a_reply(theme: Theme) -> None:
    """After a rewind to an answer, a line said that the reply was interrupted. It was whole."""
    line = TurnEndHelpLine(theme)
    whole_reply = ModelReplied(parts=(Text("All of it."),), model="m", stop=Stop.END)
    line.show_last_turn_end(session(whole_reply, Rewound(1), is_turn_open=True))
    assert line._words.text() == ""
    assert line._go.text() == "Continue"


def test_what_runs_elsewhere_needs_no_help_here(theme: Theme) -> None:
    line = TurnEndHelpLine(theme)
    line.elsewhere = True
    line.show_last_turn_end(session(ended(TurnEnd.STEP_LIMIT)))
    assert line.isHidden()


def test_a_limit_leads_to_the_limits(theme: Theme) -> None:
    line = TurnEndHelpLine(theme)
    opened: list[str] = []
    line.settings_wanted.connect(opened.append)
    line.show_last_turn_end(session(ended(TurnEnd.STEP_LIMIT)))
    line._settings.click()
    assert opened == ["limits"]


def test_what_an_interrupted_turn_changed_can_be_reviewed(theme: Theme) -> None:
    """After a kill in the middle of a turn, no line named the file that it had changed."""
    digest = Digest.of_content(b"x")
    stored = Stored(digest, 1)
    change = FilesChanged(stored, digest, digest, 1, 3, 1, names=("a.py",))
    said = UserSaid((Text("Hi"),))
    line = TurnEndHelpLine(theme)
    wanted = QSignalSpy(line.review_wanted)
    line.show_last_turn_end(session(said, change, is_turn_open=True))
    assert line._words.text().endswith(" · 1 file changed +3 −1")
    assert line._review.isVisibleTo(line)
    line._review.click()
    assert wanted.count() == 1

    undo = replace(change, by="undo", undoes=(2,))
    for facts in ((said,), (said, change, undo), (change, ended(TurnEnd.DONE), said)):
        line.show_last_turn_end(session(*facts, is_turn_open=True))
        assert "changed" not in line._words.text()
        assert not line._review.isVisibleTo(line)
    line.show_last_turn_end(session(said, change, ended(TurnEnd.STOPPED, why=CLOSED)))
    assert not line._review.isVisibleTo(line), "the transcript has a line with Review"
