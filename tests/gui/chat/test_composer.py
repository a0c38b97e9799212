from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QLocale, QMimeData, QObject, QPoint, Qt, QUrl
from PySide6.QtGui import (
    QHelpEvent,
    QImage,
    QPaintEvent,
)
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QBoxLayout, QMenu, QPushButton, QToolTip, QWidget

from helix_desktop.engine.context_usage import NextMessageCost, WindowMeter
from helix_desktop.engine.facts import Attachment, Recorded, Text, UserSaid
from helix_desktop.engine.message_cost_forecast import MessageCostForecast
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.gui import translation
from helix_desktop.gui.chat.attachment_chips import decode_message_parts, encode_message_parts
from helix_desktop.gui.chat.composer import (
    ALLOW_ALL,
    LEAST_BAR,
    LOW_WINDOW,
    Composer,
    describe_what_mode_asks,
    describe_what_rules_allow,
)
from helix_desktop.gui.chat.composer_text import PASTED
from helix_desktop.gui.chat.message_drafts import encode_draft_message
from helix_desktop.gui.chat.waiting_messages import WaitingMessageRow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    ToolAction,
    decide_permission,
)
from tests.gui import story
from tests.gui.chat.composer_hands import sent

FILE = Attachment("notes.txt", story.stored("ok\n"), 3)
ONE = encode_message_parts((FILE,))["attachments"][0]


class PaintWitness(QObject):
    """What was painted of a widget since it was last asked."""

    painted = False

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent) and isinstance(watched, QWidget):
            self.painted = self.painted or event.rect() == watched.rect()
        return False


def test_the_empty_box_names_the_workspace_it_belongs_to_at_once(composer: Composer) -> None:
    QApplication.processEvents()
    witness = PaintWitness(composer)
    viewport = composer.text.viewport()
    viewport.installEventFilter(witness)
    composer.show_draft_of("two", "new", "two")
    QApplication.processEvents()
    assert "two" in composer.text.placeholderText()
    assert witness.painted


def test_nothing_is_not_sent(composer: Composer) -> None:
    spy = sent(composer)
    QTest.keyClicks(composer.text, "   ")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert spy.count() == 0


class LaidOut(QObject):
    """How often a widget was laid out."""

    times = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.times += event.type() == QEvent.Type.LayoutRequest
        return False


def test_only_a_key_that_adds_or_takes_a_line_lays_the_composer_out(composer: Composer) -> None:
    QTest.keyClicks(composer.text, "a")
    QApplication.processEvents()
    laid_out = LaidOut()
    around = composer.text.parentWidget()
    assert around is not None
    around.installEventFilter(laid_out)
    for keys, times in (("bcd", 0), ("\n", 1), ("e", 1)):
        composer.text.insertPlainText(keys)
        QApplication.processEvents()
        assert laid_out.times == times, keys


def test_drafts_are_kept_per_conversation_over_a_restart(
    composer: Composer, theme: Theme, tmp_path: Path
) -> None:
    QTest.keyClicks(composer.text, "half a sen")
    composer.attachments.add_attachment(FILE)
    composer.show_draft_of("one", "another", "one")
    assert composer.text.toPlainText() == ""
    assert composer.attachments.listed_attachments == ()
    composer._state_file.write_state_file()
    again = Composer(theme, WindowStateFile(tmp_path / "window.json"))
    again.show_draft_of("one", "talk", "one")
    assert again.text.toPlainText() == "half a sen"
    assert again.attachments.listed_attachments == (FILE,)


def test_a_sent_message_leaves_no_draft(composer: Composer) -> None:
    QTest.keyClicks(composer.text, "done")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    composer.show_draft_of("one", "another", "one")
    composer.show_draft_of("one", "talk", "one")
    assert composer.text.toPlainText() == ""


def test_files_and_pictures_are_given_on_and_long_texts_become_attachments(
    composer: Composer, tmp_path: Path
) -> None:
    files = QSignalSpy(composer.text.files_given)
    texts = QSignalSpy(composer.text.long_pasted)
    dropped = QMimeData()
    dropped.setUrls([QUrl.fromLocalFile(str(tmp_path / "a.txt"))])
    composer.text.insertFromMimeData(dropped)
    picture = QMimeData()
    picture.setImageData(QImage(2, 2, QImage.Format.Format_RGB32))
    composer.text.insertFromMimeData(picture)
    long = QMimeData()
    long.setText("x" * (PASTED + 1))
    composer.text.insertFromMimeData(long)
    words = QMimeData()
    words.setText("just words")
    composer.text.insertFromMimeData(words)
    assert (files.count(), texts.count()) == (2, 1)
    assert composer.text.toPlainText() == "just words"


def test_an_attachment_can_be_taken_off_and_is_there_once(composer: Composer) -> None:
    composer.attachments.add_attachment(FILE)
    composer.attachments.add_attachment(FILE)
    assert composer.message_parts() == (FILE,)
    chips = composer.attachments.findChildren(QPushButton)
    assert [chip.accessibleName() for chip in chips] == ["Attachment notes.txt. Click to remove."]
    QTest.mouseClick(chips[0], Qt.MouseButton.LeftButton)
    assert composer.message_parts() == ()


@pytest.mark.parametrize(
    "broken", [None, [], {}, {"name": "x"}, {**ONE, "digest": "zz"}, {**ONE, "size": []}]
)
def test_a_damaged_draft_is_no_attachment(broken: object) -> None:
    assert decode_message_parts({"text": "Hello", "attachments": [broken]}) == (Text("Hello"),)
    assert decode_message_parts(encode_message_parts((Text("Hello"), FILE))) == (
        Text("Hello"),
        FILE,
    )


def test_stop_and_queue_stand_there_while_the_agent_works(composer: Composer) -> None:
    def shown() -> list[str]:
        buttons = (composer._stop, composer._steer, composer._send)
        return [button.text() for button in buttons if button.isVisible()]

    assert shown() == []
    composer.show_run_state(ConversationActivity.TOOLS)
    assert shown() == ["Stop"]
    QTest.keyClicks(composer.text, "next")
    assert shown() == ["Stop", "Send now", "Send when done"]
    composer.show_run_state(ConversationActivity.IDLE)
    assert shown() == ["Send"]


def test_the_mode_menu_says_below_each_mode_what_it_still_asks(composer: Composer) -> None:
    modes = [("ask", "Ask before changes and commands"), (ALLOW_ALL, "Allow everything")]
    composer.show_permission_modes([*modes, ("unknown", "A mode of a newer host")], "ask")
    composer.open_mode_menu()
    (menu,) = composer.findChildren(QMenu)
    lines = [(action.text(), action.isEnabled()) for action in menu.actions()]
    assert lines == [
        ("Ask before changes and commands", True),
        ("Asks before changes, commands, web pages and MCP tools.", False),
        ("Allow everything", True),
        (describe_what_mode_asks(ALLOW_ALL), False),
        ("A mode of a newer host", True),
    ]
    menu.close()


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        ("en_GB", "Already allowed: edits, commands and some web pages."),
        ("de", "Schon erlaubt: Änderungen, Befehle und manche Webseiten."),
        ("zh_CN", "已允许：修改、命令和部分网页。"),
    ],
)
def test_what_is_allowed_is_a_list_as_each_language_writes_it(language: str, shown: str) -> None:
    before = QLocale()
    catalogue = translation.translation_catalogue_path(language)
    if catalogue.exists():
        translation.set_translations(json.loads(catalogue.read_text("utf-8")), {})
    try:
        QLocale.setDefault(QLocale(language))
        assert describe_what_rules_allow(["edits", "commands", "some web pages"]) == shown
    finally:
        QLocale.setDefault(before)
        translation.set_translations({})


@pytest.mark.parametrize(
    ("mode", "uses", "shown"),
    [
        ("ask", [], "Ask before changes and commands"),
        ("ask", ["edits"], "Ask, but allow edits"),
        ("ask", ["edits", "some commands"], "Ask, but allow edits and some commands"),
        ("ask", ["edits", "commands", "some web pages"], "Ask, with exceptions"),
        ("allow edits", ["some commands"], "Ask, but allow edits and some commands"),
        ("plan", ["some commands"], "Plan"),
        ("ask", ["a use of a newer host"], "Ask before changes and commands"),
    ],
)
def test_the_mode_says_at_rest_what_rules_allow(
    composer: Composer, mode: str, uses: list[str], shown: str
) -> None:
    """After “Always allow edits”, edits ran without a question below “Ask before changes”."""
    modes = [
        ("plan", "Plan"),
        ("ask", "Ask before changes and commands"),
        ("allow edits", "Allow edits, ask before commands"),
    ]
    composer.show_permission_modes(modes, mode, uses)
    assert composer._mode.text() == f"{shown} ▾"
    sentence = describe_what_rules_allow(uses)
    assert sentence in composer._mode.toolTip()
    assert describe_what_mode_asks(mode) in composer._mode.toolTip()
    composer.open_mode_menu()
    (menu,) = composer.findChildren(QMenu)
    (chosen,) = [action for action in menu.actions() if action.isChecked()]
    assert chosen.text() == dict(modes)[mode]
    lines = [action.text() for action in menu.actions()]
    if sentence:
        assert lines.index(sentence) == lines.index(chosen.text()) + 2
        assert sentence in chosen.whatsThis()
    else:
        assert not any(line.startswith("Already allowed") for line in lines)
    menu.close()


WORDS_FOR_EFFECTS = {
    ActionEffect.EDIT: "changes",
    ActionEffect.RUN: "commands",
    ActionEffect.FETCH: "web pages",
    ActionEffect.FOREIGN: "MCP tools",
}


@pytest.mark.parametrize("mode", PermissionMode)
def test_what_a_mode_says_that_it_asks_is_what_it_asks(mode: PermissionMode) -> None:
    before_asking, _, asked = describe_what_mode_asks(mode).partition("Asks before")
    for effect, words in WORDS_FOR_EFFECTS.items():
        action = ToolAction("any", effect, title="", preview="", command="make", only_reads=True)
        decision = decide_permission(action, mode, (), sandboxed=True)
        assert (words in asked) is (decision.verdict == "ask"), (mode, effect)
        assert (words in before_asking) is (decision.verdict == "deny"), (mode, effect)
    hidden = ToolAction("any", ActionEffect.RUN, title="", preview="", command='eval "$x"')
    unknown = decide_permission(hidden, mode, (), sandboxed=True)
    assert unknown.verdict == ("deny" if mode is PermissionMode.READ_ONLY else "ask")


@pytest.mark.parametrize(("button", "steer"), [("_steer", True), ("_send", False)])
def test_the_two_ways_send_at_once_or_when_the_agent_is_done(
    composer: Composer, button: str, steer: bool
) -> None:
    sent = QSignalSpy(composer.sent)
    composer.show_run_state(ConversationActivity.TOOLS)
    QTest.keyClicks(composer.text, "next")
    QTest.mouseClick(getattr(composer, button), Qt.MouseButton.LeftButton)
    assert sent.at(0)[:2] == [(Text("next"),), steer]


def test_an_edited_message_cannot_be_sent_into_the_running_turn(composer: Composer) -> None:
    composer.show_run_state(ConversationActivity.TOOLS)
    composer.edit_earlier_message(3, (Text("earlier"),))
    assert not composer._steer.isVisible()


def meter(tokens: int, window: int, *, is_estimate: bool = False) -> WindowMeter:
    parts = {ContextKind.CONVERSATION: tokens}
    return WindowMeter(
        parts, tokens, window, reserve=0, factor=1.0, is_estimate=is_estimate, counted=parts
    )


def test_the_meter_says_tokens_and_cost(composer: Composer) -> None:
    composer.show_window_meter(meter(43_900, 128_000), Savings(2, 100, 100, 0, 0.42, 0.5))
    assert composer._figures.text() == "34% full · $0.420"
    described = composer.context_button.accessibleDescription()
    assert described.startswith("43.9K of 128K tokens, 34% full")
    assert composer.context_button.toolTip() == "Show what is in the context"
    assert "Not included" not in composer.context_button.toolTip()


def test_the_meter_says_that_its_cost_lacks_requests_without_a_price(composer: Composer) -> None:
    """A stopped reply and a model without a price cost nothing, while the panel said
    that they are not included.
    """
    composer.show_window_meter(
        meter(43_900, 128_000), Savings(2, 100, 100, 0, 0.42, 0.5, unpriced=1)
    )
    assert composer._figures.text() == "34% full · $0.420 +"
    assert composer.context_button.toolTip().endswith(
        "Not included: requests whose cost is unknown: 1"
    )
    described = composer.context_button.accessibleDescription()
    assert described.endswith("Not included: requests whose cost is unknown: 1")
    composer.show_window_meter(meter(43_900, 128_000), Savings(1, 0, 0, 0, 0.0, 0.0, unpriced=1))
    assert composer._figures.text() == "34% full · $0 +", "the first reply was stopped"


def test_the_meter_is_an_estimate_until_the_provider_has_reported(composer: Composer) -> None:
    composer.show_window_meter(meter(43_900, 128_000, is_estimate=True))
    assert composer._figures.text() == "≈ 34% full"
    assert composer.meter.toolTip().startswith("≈ 43.9K of 128K tokens, 34% full")


def test_the_hint_of_the_meter_is_shown_above_the_meter(composer: Composer) -> None:
    """It covered the meter and half of Send."""
    composer.show_window_meter(meter(43_900, 128_000))
    composer.show()
    composer.move(200, 500)
    button = composer.context_button
    middle = button.rect().center()
    QApplication.sendEvent(
        button, QHelpEvent(QEvent.Type.ToolTip, middle, button.mapToGlobal(middle))
    )
    assert QToolTip.text() == "Show what is in the context"
    (hint,) = [
        widget
        for widget in QApplication.topLevelWidgets()
        if widget.isVisible() and widget.inherits("QTipLabel")
    ]
    assert hint.geometry().bottom() < button.mapToGlobal(QPoint(0, 0)).y()
    QToolTip.hideText()


def test_more_than_a_window_is_said_in_words(composer: Composer) -> None:
    composer.show_window_meter(meter(997_000, 128_000))
    assert composer._figures.text() == "too long for this model"
    assert "%" not in composer.meter.toolTip()


def test_the_meter_follows_what_is_attached_at_once(composer: Composer) -> None:
    """A recall of 25K tokens left it where it was."""
    composer.show_window_meter(meter(6_000, 32_000))
    large = Attachment("log.txt", story.stored("log"), 5_000)
    composer.attachments.add_attachment(large)
    assert composer._figures.text() == "≈ 34% full", "the provider has not counted the attachment"
    composer.attachments.show_attachment_tokens(large, 900)
    (part,) = composer.message_parts_with_tokens_to_send()
    assert isinstance(part, Attachment)
    assert part.tokens == 900, "the estimate of what the message costs counts what is sent"
    assert composer._figures.text() == "≈ 22% full"
    composer.attachments._remove_attachment(large)
    assert composer._figures.text() == "19% full"


def test_a_press_on_a_way_to_send_leaves_the_focus_in_the_text(composer: Composer) -> None:
    """It went to the tab of the preview, as the button is hidden once the text is empty."""
    window = QWidget()
    composer.setParent(window)
    behind = QPushButton("a tab of the preview", window)
    QWidget.setTabOrder(composer._steer, behind)
    composer.show_run_state(ConversationActivity.TOOLS)
    composer.text.setPlainText("go on")
    window.show()
    composer.show()
    QApplication.processEvents()
    composer._steer.setFocus()
    composer._steer.click()
    focused = window.focusWidget()
    is_steer_hidden = composer._steer.isHidden()
    composer.setParent(None)
    assert (focused, is_steer_hidden) == (composer.text, True)


def test_what_messages_cost_is_beside_send_and_gone_where_it_is_not_known(
    composer: Composer,
) -> None:
    request = NextMessageCost(warm=0.0012, cold=0.0031, reply=800, forever=True)
    forecast = MessageCostForecast(dollars=0.0042, low=0.003, high=0.0085, messages=7)
    composer.price.show_next_message_cost(request, forecast)
    assert composer.price.text() == "Messages here cost about $0.0042"
    told = composer.price.toolTip()
    assert "last 7 messages" in told
    assert "between $0.0030 and $0.0085" in told
    assert "$0.0012 while" in told

    composer.price.show_next_message_cost(request)
    assert composer.price.text() == "", "a message costs several times as much as its first request"
    composer.price.show_next_message_cost(None)
    assert composer.price.text() == ""
    assert composer.price.isHidden()


def test_a_request_that_costs_more_than_messages_did_is_named_as_what_it_is(
    composer: Composer,
) -> None:
    request = NextMessageCost(warm=0.4, cold=2.5, reply=800, forever=True)
    for forecast in (None, MessageCostForecast(dollars=0.2, low=0.1, high=0.3, messages=2)):
        composer.price.show_next_message_cost(request, forecast)
        assert composer.price.text() == "Next message: $0.400 for its first request"


def test_how_long_the_cache_lives_and_that_folding_first_pays_once_it_has_expired(
    composer: Composer,
) -> None:
    wanted = QSignalSpy(composer.fold_wanted)
    composer.price.now = lambda: 1_000.0
    price = NextMessageCost(warm=0.04, cold=0.31, reply=800, warm_until=1_230.0)
    forecast = MessageCostForecast(dollars=0.12, low=0.1, high=0.2, messages=5)
    composer.price.show_next_message_cost(price, forecast, lambda: 0.11)
    assert composer.price.text() == "Messages here cost about $0.120 · price rises in 4 min"
    assert composer._fold.isHidden()
    composer.price.now = lambda: 1_231.0
    composer.price._update_next_message_cost()
    told = "Next message: $0.310 for its first request · full price again"
    assert composer.price.text() == told
    assert not composer._fold.isHidden()
    assert composer._fold.text() == "Shorten first, saves about $0.110"
    assert "$0.110" in composer._fold.toolTip()
    composer.price.show_next_message_cost(price, forecast, lambda: 0.004)
    assert composer._fold.isHidden(), "less than a cent is not worth a decision"
    composer.price.show_next_message_cost(price, forecast, lambda: 0.11)
    composer._fold.click()
    assert wanted.count() == 1
    composer.show_run_state(ConversationActivity.THINKING)
    assert composer._fold.isHidden()


def test_a_message_that_comes_back_while_a_word_is_typed_leaves_the_word_whole(
    composer: Composer,
) -> None:
    QTest.keyClicks(composer.text, "beg")
    composer.put_message_back((Text("waited"), Text("long"), FILE))
    QTest.keyClicks(composer.text, "un")
    assert composer.text.toPlainText() == "waited\n\nlong\n\nbegun"
    assert composer.attachments.listed_attachments == (FILE,)


def test_editing_an_earlier_message_sends_it_in_its_place(composer: Composer) -> None:
    resent = QSignalSpy(composer.resent)
    spy = sent(composer)
    composer.edit_earlier_message(14, (Text("as it was"),))
    QTest.keyClicks(composer.text, ", but better")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert resent.at(0)[:2] == [14, (Text("as it was, but better"),)]
    assert spy.count() == 0
    QTest.keyClicks(composer.text, "new")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert spy.count() == 1


@pytest.mark.parametrize(
    "leave", ["sent", "given up", "another one edited", "another conversation"]
)
def test_what_was_begun_is_there_again_after_an_earlier_message_was_edited(
    composer: Composer, leave: str
) -> None:
    composer.put_message_back((Text("half a sentence"), FILE))
    composer.edit_earlier_message(14, (Text("as it was"),))
    assert composer.message_parts() == (Text("as it was"),)
    if leave == "sent":
        QTest.keyClick(composer.text, Qt.Key.Key_Return)
    elif leave == "another one edited":
        composer.edit_earlier_message(16, (Text("the next one"),))
        composer.stop_editing_and_restore_draft()
    elif leave == "another conversation":
        composer.show_draft_of("one", "other", "")
        composer.show_draft_of("one", "talk", "")
        assert composer.message_parts() == (Text("as it was"),)
        composer.stop_editing_and_restore_draft()
    else:
        composer.stop_editing_and_restore_draft()
    assert composer.message_parts() == (Text("half a sentence"), FILE)


def test_an_edit_outlives_the_program_and_still_replaces_its_message(
    composer: Composer, theme: Theme, tmp_path: Path
) -> None:
    composer.put_message_back((Text("half a sentence"), FILE))
    composer.edit_earlier_message(14, (Text("as it was"),))
    QTest.keyClicks(composer.text, ", but better")
    composer._state_file.write_state_file()
    again = Composer(theme, WindowStateFile(tmp_path / "window.json"))
    again.show_draft_of("one", "talk", "one")
    resent = QSignalSpy(again.resent)
    QTest.keyClick(again.text, Qt.Key.Key_Return)
    assert resent.at(0)[:2] == [14, (Text("as it was, but better"),)]
    assert again.message_parts() == (Text("half a sentence"), FILE)


def test_a_message_that_could_not_begin_a_conversation_goes_into_no_other_one(
    composer: Composer,
) -> None:
    composer.show_draft_of("one", "new", "one")
    composer.show_draft_of("one", "talk", "one")
    composer.add_and_tell_if_shown(("one", "new"), (Text("a first message"),))
    assert composer.text.toPlainText() == ""
    composer.show_draft_of("one", "new", "one")
    assert composer.text.toPlainText() == "a first message"


def test_the_mode_is_not_shortened_for_figures_that_find_no_room_anyway(composer: Composer) -> None:
    composer.show_permission_modes([("ask", "Ask before changes and commands")], "ask")
    composer.resize(590, 300)
    composer.show_window_meter(meter(40_000, 32_000), Savings(2, 100, 100, 0, 1e24, 0.5))
    assert not composer._figures.isVisible()
    assert composer.context_button.isVisible()
    assert composer._mode.text() == "Ask before changes and commands ▾"
    composer.show_permission_modes([("allow all", "Alles erlauben")], "allow all")
    composer._fit_controls_to_width()
    assert composer._mode.text() == "Alles erlauben ▾"
    composer.show_permission_modes([("ask", "Ask before changes and commands " * 3)], "ask")
    assert composer._mode.text().startswith("Ask before changes and commands")
    assert composer._mode.text().endswith("… ▾")
    assert composer.context_button.isVisible()


def test_a_mode_that_asks_is_shortened_so_that_the_figures_are_in_sight(composer: Composer) -> None:
    """At 200 %, a screen of 1440 pixels showed neither how full the window is nor the cost."""
    words = "Ask before changes and commands"
    composer.show_window_meter(meter(10_000, 32_000), Savings(2, 100, 100, 0, 0.5, 0.5))
    composer.show_permission_modes([("ask", words)], "ask")
    composer.setMinimumWidth(0)
    owner = QWidget()
    composer.setParent(owner)
    composer.setGeometry(0, 0, 430, 200)
    composer._fit_controls_to_width()
    assert not composer._figures.isHidden()
    assert composer._mode.text().startswith("Ask before ")
    assert composer._mode.text().endswith("… ▾")
    composer.show_permission_modes([("allow all", words)], "allow all")
    assert composer._mode.text() == f"{words} ▾"
    composer.setParent(None)


def test_the_mode_and_the_figures_are_read_beside_three_ways(composer: Composer) -> None:
    """At 200 % in German, with the agent at work, “Vor Änderungen und Befehlen fragen” was “Vor
    Änder…”, beside a meter of a few pixels. The ways to send have a row of their own then.
    """
    words = "Vor Änderungen und Befehlen fragen"
    composer.show_window_meter(meter(10_000, 32_000), Savings(2, 100, 100, 0, 0.5, 0.5))
    composer.show_permission_modes([("ask", words)], "ask")
    composer.setMinimumWidth(0)
    owner = QWidget()
    owner.resize(800, 600)
    composer.setParent(owner)
    composer.show_run_state(ConversationActivity.TOOLS)
    composer.text.setPlainText("next")
    widths_in_one_row: list[int] = []
    for width in range(500, 800, 10):
        composer.setGeometry(0, 0, width, 200)
        composer._fit_controls_to_width()
        assert not composer._figures.isHidden(), width
        assert composer._mode.text().startswith("Vor Änderung"), width
        if composer._row.direction() == QBoxLayout.Direction.LeftToRight:
            widths_in_one_row.append(width)
    assert widths_in_one_row
    # Where the window is low, a second row would take the text's room.
    owner.resize(800, LOW_WINDOW - 100)
    composer.setGeometry(0, 0, 580, 200)
    composer._fit_controls_to_width()
    assert composer._row.direction() == QBoxLayout.Direction.LeftToRight
    composer.setParent(None)


def test_the_meter_makes_room_for_the_whole_name_of_the_mode(composer: Composer) -> None:
    """At 200 % in a narrow window, “Alles erlauben” was “Alle…”, beside a bar."""
    composer.show_permission_modes([("allow all", "Alles erlauben, was es auch sei")], "allow all")
    composer.show_window_meter(meter(40_000, 32_000), Savings(2, 100, 100, 0, 0.5, 0.5))
    composer.setMinimumWidth(0)
    owner = QWidget()
    cut: list[int] = []
    composer.setParent(owner)
    for width in range(900, 250, -10):
        composer.setGeometry(0, 0, width, 200)
        composer._fit_controls_to_width()
        if composer._mode.text().endswith("… ▾"):
            composer._show_mode_name("Alles erlauben, was es auch sei")
            buttons = (composer._attach, composer._mode, composer._send)
            cut.append(width - 64 - sum(each.sizeHint().width() + 10 for each in buttons))
    assert cut
    assert max(cut) < LEAST_BAR, "there was room for it beside the shortest bar"
    composer.setParent(None)


@pytest.mark.parametrize(("width", "words"), [(1_000, "+ Attach"), (420, "+"), (240, "+")])
def test_in_a_very_narrow_window_no_button_is_cut(
    composer: Composer, width: int, words: str
) -> None:
    composer.setMinimumWidth(0)
    composer.show_permission_modes([("ask", "Ask before changes and commands")], "ask")
    owner = QWidget()
    owner.resize(800, 300)
    composer.setParent(owner)
    owner.show()
    composer.show()
    composer.text.setPlainText("next")
    composer.setGeometry(0, 0, width, 200)
    QApplication.sendPostedEvents()
    assert composer._attach.text() == words
    for button in (composer._attach, composer._mode, composer._send):
        assert button.width() >= button.sizeHint().width()
        assert composer._box.rect().contains(button.geometry())
    composer.setParent(None)
    owner.deleteLater()


def test_a_name_that_was_cut_has_one_ellipsis(composer: Composer) -> None:
    composer.show_draft_of("w", "c", "A rather long name that …")
    assert composer.text.placeholderText() == "Message A rather long name that…"


def test_in_the_smallest_window_at_twice_the_size_every_way_to_send_can_be_read(
    composer: Composer,
) -> None:
    """The three buttons were pressed together until none of their words could be read."""
    composer._theme.set_zoom(2.0)
    show_while_thinking(composer, 560, 500)
    for button in (composer._stop, composer._steer, composer._send):
        assert button.isVisible()
        assert button.width() >= button.sizeHint().width(), button.text()
        assert button.geometry().right() <= composer.width()
    composer._theme.set_zoom(1.0)
    composer.resize(760, 700)
    QApplication.processEvents()
    line = composer._attach.geometry().adjusted(0, 0, 1_000, 0)
    assert line.intersects(composer._send.geometry()), "one line"


def test_in_the_smallest_window_at_twice_the_size_the_second_waiting_message_is_counted(
    composer: Composer,
) -> None:
    composer._theme.set_zoom(2.0)
    show_while_thinking(composer, 560, 500)
    rows = composer.waiting.findChildren(WaitingMessageRow)
    assert [row.isVisible() for row in rows] == [True, False], "the others are counted below it"
    assert composer.waiting._more.text() == "and 1 more"
    assert rows[0].more.isVisible()
    editing = QSignalSpy(composer.waiting.editing)
    rows[0].more.click()
    (menu,) = rows[0].findChildren(QMenu)
    next(action for action in menu.actions() if action.text() == "Edit").trigger()
    assert editing.at(0) == [0]
    composer._theme.set_zoom(1.0)
    composer.resize(760, 700)
    QApplication.processEvents()
    assert [row.isVisible() for row in rows] == [True, True]
    assert [row.more.isVisible() for row in rows] == [False, False]


def show_while_thinking(composer: Composer, width: int, height: int) -> None:
    """With words in the field and two messages that wait."""
    composer.resize(width, height)
    composer.show()
    composer.show_run_state(ConversationActivity.THINKING)
    composer.text.setPlainText("go on")
    composer.show_waiting_messages([(Text("one"),), (Text("two"),)], 1)
    QApplication.processEvents()


def composer_after_kill(theme: Theme, folder: Path, **values: object) -> Composer:
    """A message box with what a killed program left in its state file."""
    place = folder / "window.json"
    before = WindowStateFile(place)
    for kind, value in values.items():
        before.remember_value(kind, "w", "c", value=value)
    before.write_state_file()
    composer = Composer(theme, WindowStateFile(place))
    composer.show_draft_of("w", "c", "W")
    return composer


def conversation(*messages: UserSaid) -> ConversationState:
    recorded = [Recorded("c", seq, 1.0, message) for seq, message in enumerate(messages, 1)]
    return build_state(recorded)


def queued_again(command: str) -> QueuedMessage:
    return QueuedMessage((Text("again", tokens=1),), steer=False, command_id=command)


AGAIN = (Text("again"),)


@pytest.mark.parametrize(("command", "left"), [("a", ""), ("b", "again"), ("", "again")])
def test_a_draft_goes_only_if_it_was_sent_whatever_others_say(
    theme: Theme, tmp_path: Path, command: str, left: str
) -> None:
    """An equal message, queued before the draft was written, was recorded or waits. It was taken
    for the draft, which was lost with the kill.
    """
    draft = encode_draft_message(AGAIN, "a")
    recorded = composer_after_kill(theme, tmp_path, draft=draft)
    assert recorded.text.toPlainText() == "again"
    recorded.take_over_messages_of_last_start(conversation(UserSaid(AGAIN, command=command)), [])
    assert recorded.text.toPlainText() == left
    queued = composer_after_kill(theme, tmp_path, draft=draft)
    queued.take_over_messages_of_last_start(conversation(), [queued_again(command)])
    assert queued.text.toPlainText() == left


def test_the_draft_of_an_earlier_version_stays(theme: Theme, tmp_path: Path) -> None:
    """It has no id, so nobody knows. What is seen twice is not lost."""
    composer = composer_after_kill(theme, tmp_path, draft=encode_message_parts(AGAIN))
    sent = conversation(UserSaid(AGAIN), UserSaid(AGAIN, command="a"))
    composer.take_over_messages_of_last_start(sent, [])
    assert composer.text.toPlainText() == "again"


def test_a_draft_that_is_changed_after_a_kill_is_another_message(
    theme: Theme, tmp_path: Path
) -> None:
    """The user writes on before the conversation is there, which has the draft already."""
    composer = composer_after_kill(theme, tmp_path, draft=encode_draft_message(AGAIN, "a"))
    assert composer.draft_id == "a"
    composer.text.insertPlainText("go on")
    assert composer.draft_id not in ("", "a")
    written = composer.text.toPlainText()
    composer.take_over_messages_of_last_start(conversation(UserSaid(AGAIN, command="a")), [])
    assert composer.text.toPlainText() == written


def test_each_draft_has_an_id_of_its_own_and_keeps_it(composer: Composer) -> None:
    composer.show_draft_of("w", "c", "W")
    sent_ids: list[str] = []
    composer.sent.connect(lambda _parts, _steer, draft_id: sent_ids.append(draft_id))
    saved_ids: list[str] = []
    for _ in range(2):
        QTest.keyClicks(composer.text, "aga")
        saved_ids.append(composer.drafts.get_draft_id(("w", "c")))
        QTest.keyClicks(composer.text, "in")
        composer.send_composed_message(steer=False)
        assert composer.draft_id == ""
    assert sent_ids == saved_ids
    assert len({*sent_ids, ""}) == 3


def test_messages_that_wait_in_the_file_come_back_unless_they_were_sent(
    theme: Theme, tmp_path: Path
) -> None:
    waiting = [
        encode_draft_message((Text(words),), words[0]) for words in ("again", "back", "call")
    ]
    composer = composer_after_kill(theme, tmp_path, waiting=waiting)
    state = conversation(UserSaid(AGAIN, command="a"), UserSaid((Text("back"),), command="x"))
    composer.take_over_messages_of_last_start(state, [queued_again("c")])
    assert composer.text.toPlainText() == "back"
    composer.take_over_messages_of_last_start(state, [])
    assert composer.text.toPlainText() == "back", "who takes it out of the queue has it"


def test_messages_of_this_start_stay_in_the_file_until_they_are_sent(
    theme: Theme, tmp_path: Path
) -> None:
    waiting = [encode_draft_message(AGAIN, "a"), encode_draft_message((Text("back"),), "b")]
    composer = composer_after_kill(theme, tmp_path, waiting=waiting)
    composer.take_over_messages_of_last_start(conversation(), [queued_again("a")], ["a"])
    assert composer.text.toPlainText() == "back"
    kept = composer._state_file.get_remembered("waiting", "w", "c", default=list[object]())
    assert kept == waiting[:1]


def test_an_edited_message_that_was_sent_before_a_kill_gives_the_draft_before_it_back(
    theme: Theme, tmp_path: Path
) -> None:
    edit = {"seq": 1, "aside": encode_message_parts([Text("a draft")])}
    composer = composer_after_kill(
        theme, tmp_path, draft=encode_draft_message(AGAIN, "a"), edit=edit
    )
    assert composer.replaced_message == 1
    composer.take_over_messages_of_last_start(conversation(UserSaid(AGAIN, command="a")), [])
    assert composer.replaced_message == 0
    assert composer.text.toPlainText() == "a draft"


def test_a_price_that_finds_no_room_takes_none_from_the_bar(composer: Composer) -> None:
    """With a draft in the box, an empty gap stood in the bar's place."""
    composer.show_window_meter(meter(43_900, 128_000), Savings(2, 100, 100, 0, 0.42, 0.5))
    composer.price.now = lambda: 1_000.0
    price = NextMessageCost(warm=0.04, cold=0.31, reply=800, warm_until=1_230.0)
    forecast = MessageCostForecast(dollars=0.12, low=0.1, high=0.2, messages=5)
    composer.price.show_next_message_cost(price, forecast, lambda: 0.004)
    composer.text.setPlainText("a draft")
    gaps: list[int] = []
    are_both_seen: set[bool] = set()
    for letters in range(4, 60):
        composer.show_permission_modes([("ask", "m" * letters)], "ask")
        composer._fit_controls_to_width()
        are_both_seen.add(composer.price.isHidden())
        room = composer._measure_room_beside_buttons()
        figures_width = composer._figures.sizeHint().width()
        has_room_for_bar = room > figures_width + 150
        if composer.price.isHidden() and has_room_for_bar and composer.meter.isHidden():
            gaps.append(letters)
    assert are_both_seen == {True, False}
    assert gaps == []
