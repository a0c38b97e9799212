"""Joins recorded sessions into one conversation with several tasks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession


def join_recordings(recordings: Sequence[RecordedSession]) -> RecordedSession:
    """All messages in order. The first session's system prompt stands for all; times are left out, as they do not follow
    each other.
    """
    messages = tuple(one for number, each in enumerate(recordings) for one in _messages_of_task(each, number))
    return RecordedSession(f"{len(recordings)} sessions as one conversation", messages)


def _messages_of_task(recording: RecordedSession, number: int) -> Iterator[RecordedMessage]:
    """The messages with ids of calls that no other task has."""
    for message in recording.messages:
        if message.role == "system" and number:
            continue
        calls = tuple(replace(call, id=f"{number}-{call.id}") for call in message.calls)
        answers = f"{number}-{message.answers}" if message.answers else ""
        yield replace(message, calls=calls, answers=answers, time=0.0)
