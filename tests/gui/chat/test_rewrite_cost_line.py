"""The line that says what a turn paid for writing context again."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from helix_desktop.engine.context_usage import PendingRewrite
from helix_desktop.engine.facts import (
    BroughtIn,
    ModelReplied,
    Origin,
    Stop,
    SystemSet,
    Text,
    Usage,
    UserSaid,
)
from helix_desktop.engine.request_changes import Cause, CauseKind
from helix_desktop.engine.request_costs import CauseCost, RequestCost, explain_costs_of_last_turn
from helix_desktop.engine.session_events import ConversationActivity, MeterChanged
from helix_desktop.gui.chat.rewrite_cost_line import describe_avoidable_costs
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeSession


def request(cost: float, *causes: CauseCost) -> RequestCost:
    return RequestCost(9, 0.0, "m", sum(one.tokens for one in causes), cost, causes)


def again(dollars: float, kind: CauseKind = CauseKind.TIME, detail: str = "12 min") -> CauseCost:
    return CauseCost(Cause(kind, detail), 80_000, dollars)


def test_only_what_costs_over_ten_cents_or_a_tenth_of_the_turn_is_told() -> None:
    assert describe_avoidable_costs([request(1.0, again(0.09))]) == ""
    assert "$0.110" in describe_avoidable_costs([request(9.0, again(0.11))])
    assert "12 min" in describe_avoidable_costs([request(0.5, again(0.06))])
    assert describe_avoidable_costs([request(0.5, again(0.06, CauseKind.FOLD, "marker-1"))]) == ""
    assert describe_avoidable_costs([request(0.0)]) == ""


def test_tools_that_changed_are_named_in_words() -> None:
    changed = again(0.5, CauseKind.TOOLS, "+weather__forecast, ~read_file and 2 more")
    told = describe_avoidable_costs([request(1.0, changed)])
    assert told.endswith(
        "the tools have changed (new: forecast (weather), changed: Read a file, 2 more)."
    )


def test_every_avoidable_cause_is_told_in_words_of_its_own() -> None:
    told = {describe_avoidable_costs([request(1.0, again(0.5, kind))]) for kind in CauseKind}
    assert len(told - {""}) == 7


def test_a_tools_name_is_no_mark_up(window: MainWindow) -> None:
    assert window.chat.rewrite_cost._words.textFormat() is Qt.TextFormat.PlainText


def test_a_choice_that_writes_the_context_again_is_told_before_it_is_sent(
    window: MainWindow, session: FakeSession
) -> None:
    line = window.chat.rewrite_cost
    session.rewrite = PendingRewrite(80_000, 0.28, is_model=True)
    session.tell(MeterChanged(session.id))
    window.chat.bridge.emit_waiting_events()
    assert line.isVisible()
    assert "$0.280" in line._words.text()
    assert "another model or thinking level reads everything anew" in line._words.text()
    session.rewrite = PendingRewrite(80_000, 0.009)
    session.tell(MeterChanged(session.id))
    window.chat.bridge.emit_waiting_events()
    assert not line.isVisible()


def test_a_limit_that_cannot_act_is_told_once_in_each_conversation(
    window: MainWindow, session: FakeSession
) -> None:
    line = window.chat.rewrite_cost
    session.unpriced = "own/scripted"
    session.tell(MeterChanged(session.id))
    window.chat.bridge.emit_waiting_events()
    assert line.isVisible()
    assert line._words.text().startswith(
        "No price is set for own/scripted, so cost limits have no effect on this model."
    )
    wanted: list[bool] = []
    window.window_actions.set_action_handler("model-price", lambda: wanted.append(True))
    set_price, close = line.findChildren(QPushButton)
    set_price.click()
    assert (set_price.text(), wanted) == ("Set the price…", [True])
    close.click()
    session.tell(MeterChanged(session.id))
    window.chat.bridge.emit_waiting_events()
    assert line.isHidden(), "the user knows it now"
    session.rewrite = PendingRewrite(80_000, 0.28, is_model=True)
    session.tell(MeterChanged(session.id))
    window.chat.bridge.emit_waiting_events()
    assert "$0.280" in line._words.text()
    assert line.isVisible()
    assert set_price.isHidden(), "this is about something else"
    session.rewrite = None
    session.unpriced = ""
    session.tell(MeterChanged(session.id))
    window.chat.bridge.emit_waiting_events()
    assert line.isHidden()


def test_the_window_shows_it_when_the_turn_has_ended(
    window: MainWindow, session: FakeSession
) -> None:
    line = window.chat.rewrite_cost
    model = session.conversation.state.branch.message_at(
        session.conversation.state.branch.steps[-1]
    ).fact
    assert isinstance(model, ModelReplied)
    session.append(UserSaid((Text("Go on.", 3),)))
    session.append(
        ModelReplied(
            (Text("So.", 2),),
            model.model,
            Stop.END,
            Usage(100_000, 0, 100_000, 50, 0, 0.4),
            seconds=1.0,
        ),
        SystemSet("Another prompt.", 4),
        UserSaid((Text("And on.", 3),)),
        ModelReplied(
            (Text("Yes.", 2),),
            model.model,
            Stop.END,
            Usage(100_100, 0, 100_100, 50, 0, 0.4),
            seconds=1.0,
        ),
    )
    session.set_running(ConversationActivity.IDLE)
    window.chat.bridge.emit_waiting_events()
    assert line.isVisible()
    assert "the system prompt or the rules have changed" in line._words.text()
    assert "$0.399" in line._words.text()
    session.set_running(ConversationActivity.THINKING)
    window.chat.bridge.emit_waiting_events()
    assert not line.isVisible(), "it would seem to be about the answer that is being written"
    session.set_running(ConversationActivity.IDLE)
    window.chat.bridge.emit_waiting_events()
    assert line.isVisible()
    window.sides.show_session_or_new(None)
    assert not line.isVisible()


def test_the_first_request_after_an_import_writes_nothing_again(
    window: MainWindow, session: FakeSession
) -> None:
    session.append(
        BroughtIn(Origin("claude", "s"), "run", first=1),
        UserSaid((Text("Go on.", 3),)),
        ModelReplied(
            (Text("So.", 2),),
            "another",
            Stop.END,
            Usage(90_000, 0, 90_000, 50, 0, 0.4),
            seconds=1.0,
        ),
    )
    assert describe_avoidable_costs(explain_costs_of_last_turn(session.conversation.state)) == ""
    session.append(
        UserSaid((Text("And on.", 3),)),
        ModelReplied(
            (Text("Yes.", 2),),
            "a third",
            Stop.END,
            Usage(90_100, 0, 90_100, 50, 0, 0.4),
            seconds=1.0,
        ),
    )
    assert "was changed" in describe_avoidable_costs(
        explain_costs_of_last_turn(session.conversation.state)
    )


def test_nothing_is_called_dropped_that_the_provider_never_reported_as_cached(
    session: FakeSession,
) -> None:
    """The defect: a notice after nearly every answer of a server that reports no writes."""

    def answer_with(cache_read: int, cache_write: int = 0) -> str:
        usage = Usage(100_000, cache_read, cache_write, 50, 0, 0.4)
        reply = ModelReplied((Text("So.", 2),), "own/scripted", Stop.END, usage, seconds=1.0)
        session.append(UserSaid((Text("Go on.", 3),)), reply)
        return describe_avoidable_costs(explain_costs_of_last_turn(session.conversation.state))

    answer_with(70_000)
    assert answer_with(70_000) == ""
    assert answer_with(90_000) == ""
    assert "had not kept" in answer_with(20_000), "it had read 90,000 of it"
    answer_with(90_000, cache_write=10_000)
    assert "had not kept" in answer_with(0), "it had written all of it"
