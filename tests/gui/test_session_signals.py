from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    ReplyStreamed,
    ToolPrinted,
)
from helix_desktop.gui.session_signals import SHOWN_OUTPUT_CHARACTERS, EventBridge

TEXT = st.text("ab c", min_size=1, max_size=5)
EVENTS = st.lists(
    st.one_of(
        TEXT.map(lambda text: ReplyStreamed("c", TextDelta(text))),
        TEXT.map(lambda text: ReplyStreamed("c", ReasoningDelta(text))),
        st.tuples(st.integers(0, 2), TEXT).map(
            lambda pair: ReplyStreamed("c", CallDelta(pair[0], "", "", pair[1]))
        ),
        st.tuples(st.sampled_from("xy"), TEXT).map(lambda pair: ToolPrinted("c", pair[0], pair[1])),
        st.sampled_from(ConversationActivity).map(lambda running: ActivityChanged("c", running)),
    ),
    max_size=30,
)


def handed_on(events: list[Event]) -> list[Event]:
    bridge = EventBridge()
    got = list[Event]()
    bridge.events_arrived.connect(got.extend)
    for event in events:
        bridge.queue_event(event)
    bridge.emit_waiting_events()
    return got


def text_by_stream(events: list[Event]) -> dict[object, str]:
    texts: dict[object, str] = {}
    for event in events:
        if isinstance(event, ToolPrinted):
            texts[event.call] = texts.get(event.call, "") + event.text
        elif isinstance(event, ReplyStreamed) and isinstance(
            event.delta, TextDelta | ReasoningDelta
        ):
            key = type(event.delta)
            texts[key] = texts.get(key, "") + event.delta.text
        elif isinstance(event, ReplyStreamed) and isinstance(event.delta, CallDelta):
            texts[event.delta.index] = texts.get(event.delta.index, "") + event.delta.arguments
    return texts


@given(events=EVENTS)
def test_joining_loses_nothing_and_keeps_the_order(
    application: QApplication, events: list[Event]
) -> None:
    got = handed_on(events)
    assert text_by_stream(got) == text_by_stream(events)
    assert [e for e in got if isinstance(e, ActivityChanged)] == [
        e for e in events if isinstance(e, ActivityChanged)
    ]
    assert len(got) <= len(events)


def test_thousands_of_deltas_become_one(application: QApplication) -> None:
    got = handed_on([ReplyStreamed("c", TextDelta("x")) for _ in range(5_000)])
    assert got == [ReplyStreamed("c", TextDelta("x" * 5_000))]


def test_of_a_flood_of_output_only_the_end_is_handed_on(application: QApplication) -> None:
    got = handed_on([ToolPrinted("c", "call", "y" * 1_000) for _ in range(1_000)])
    assert len(got) == 1
    assert isinstance(got[0], ToolPrinted)
    assert len(got[0].text) == SHOWN_OUTPUT_CHARACTERS


def test_leaving_hands_on_what_came_before(application: QApplication) -> None:
    bridge = EventBridge()
    got = list[Event]()
    left = list[str]()
    bridge.events_arrived.connect(got.extend)

    def subscribe(listener: object) -> object:
        assert callable(listener)
        listener(ActivityChanged("c", ConversationActivity.THINKING))
        return lambda: left.append("left")

    bridge.listen_to_session(subscribe)  # type: ignore[arg-type]  # looser than a Protocol
    bridge.stop_listening_to_session()
    assert got == [ActivityChanged("c", ConversationActivity.THINKING)]
    assert left == ["left"]
