"""The queue: whatever is done to it, no message is lost, none is doubled, and those that steer come
first.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import Text
from helix_desktop.engine.message_queue import MessageQueue
from helix_desktop.engine.session_events import MessagesQueued
from tests.engine.agent import Words


def queue_with(*messages: tuple[str, bool]) -> tuple[MessageQueue, list[MessagesQueued]]:
    heard: list[MessagesQueued] = []
    conversation = SimpleNamespace(id="a", notify_listeners=heard.append)
    queue = MessageQueue(cast("Any", conversation), Words())
    for text, steer in messages:
        queue.add_message([Text(text)], steer=steer)
    return queue, heard


def words(queue: MessageQueue) -> list[str]:
    found: list[str] = []
    for waiting in queue:
        (part,) = waiting.parts
        assert isinstance(part, Text)
        found.append(part.text)
    return found


def test_a_message_that_steers_goes_before_those_that_wait_for_the_end() -> None:
    queue, heard = queue_with(("one", False), ("two", True), ("three", True))
    assert words(queue) == ["two", "three", "one"]
    assert heard[-1].steering_count == 2


def test_a_message_is_sent_at_another_time() -> None:
    queue, heard = queue_with(("one", False), ("two", False))
    queue.set_steering(1, steer=True)
    assert words(queue) == ["two", "one"]
    assert heard[-1].steering_count == 1
    assert [waiting.steer for waiting in queue.pop_steering_messages()] == [True]
    assert words(queue) == ["one"]


def test_a_message_moves_among_those_that_go_at_the_same_time() -> None:
    queue, _ = queue_with(("now", True), ("one", False), ("two", False))
    queue.move_message(2, 1)
    assert words(queue) == ["now", "two", "one"]
    queue.move_message(1, 0)
    queue.move_message(0, 2)
    assert words(queue) == ["now", "two", "one"]


@given(st.data())
def test_nothing_is_lost_or_doubled_whatever_the_user_does(data: st.DataObject) -> None:
    texts = [f"message {number}" for number in range(data.draw(st.integers(1, 6)))]
    queue, heard = queue_with(*((text, data.draw(st.booleans())) for text in texts))
    for _ in range(data.draw(st.integers(0, 12))):
        index = data.draw(st.integers(0, len(queue) - 1))
        if data.draw(st.booleans()):
            queue.move_message(index, index + data.draw(st.sampled_from([-1, 1])))
        else:
            queue.set_steering(index, steer=data.draw(st.booleans()))
    assert sorted(words(queue)) == texts
    steering = [waiting.steer for waiting in queue]
    assert steering == sorted(steering, reverse=True)
    assert heard[-1].messages == tuple(waiting.parts for waiting in queue)


def test_a_message_that_could_not_be_sent_is_not_shown_in_the_place_of_one_that_steers() -> None:
    queue, heard = queue_with(("refused by a hook", False), ("later", False))
    refused = queue.pop_next_message()
    queue.add_message([Text("written meanwhile")], steer=True)
    queue.requeue_messages([refused])
    assert words(queue) == ["refused by a hook", "written meanwhile", "later"]
    shown_as_steering = [index < heard[-1].steering_count for index in range(len(queue))]
    assert shown_as_steering == [waiting.steer for waiting in queue]
    queue.move_message(1, 0)
    assert words(queue) == ["written meanwhile", "refused by a hook", "later"]


def test_a_message_that_is_taken_back_is_given_to_who_asked_and_waits_no_more() -> None:
    queue, heard = queue_with(("one", False), ("two", False))
    (part,) = queue.take_back_queued(0)
    assert part == Text("one", 1)
    assert words(queue) == ["two"]
    assert heard[-1].taken_back == ((part,),)
    assert [message for (message,) in heard[-1].messages] == [Text("two", 1)]


def test_the_next_message_is_the_first_and_what_could_not_be_sent_is_first_again() -> None:
    queue, heard = queue_with(("one", False), ("two", False))
    message = queue.pop_next_message()
    assert message.parts == (Text("one", 1),)
    queue.requeue_messages([message])
    assert words(queue) == ["one", "two"]
    assert not queue[0].steer
    assert heard[-1].put_back == (message.parts,)
    assert heard[-1].taken_back == ()


def test_before_messages_that_steer_one_steers_too_unless_it_rewinds() -> None:
    queue, _ = queue_with(("now", True))
    plain, _ = queue_with(("again", False))
    queue.requeue_messages([plain[0], replace(plain[0], rewinds_to=3)])
    assert words(queue) == ["again", "again", "now"]
    assert [message.steer for message in queue] == [True, False, True]


def test_nothing_is_told_where_no_message_steers() -> None:
    queue, heard = queue_with(("one", False))
    count = len(heard)
    assert queue.pop_steering_messages() == []
    assert len(heard) == count
