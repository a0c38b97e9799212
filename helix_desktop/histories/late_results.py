"""Puts each result behind the reply whose call it answers, wherever the file has it.

Claude Code, Codex and others run calls of several replies at once, and write each result
when it comes. A request must have it right behind its call, so a result that came later
was no result any more, and its call seemed interrupted.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)


@dataclass(frozen=True, slots=True)
class MovedResult:
    """A result at `position` that belongs before the message `before`."""

    position: int
    before: int


def put_results_behind_their_calls(session: RecordedSession) -> RecordedSession:
    """Return the session with late results moved, and its compactions where they were."""
    moved = _find_late_results(session.messages)
    if not moved:
        return session
    compactions: list[RecordedCompaction] = []
    for compaction in session.compactions:
        at = _new_position(compaction.at, moved)
        keep = _new_position(compaction.keep, moved)
        compactions.append(replace(compaction, at=at, keep=keep))
    return replace(
        session,
        messages=_messages_in_new_order(session.messages, moved),
        compactions=tuple(compactions),
        forked_at=_count_messages_still_shared(session.forked_at, moved),
    )


def _find_late_results(messages: Sequence[RecordedMessage]) -> list[MovedResult]:
    """Return the results that do not stand between their reply and the end of its wait, with
    where they belong.
    """
    end_by_reply = _ends_of_replies(messages)
    moved: list[MovedResult] = []
    for position, reply in _replies_by_result(messages).items():
        end = end_by_reply[reply]
        if not reply < position <= end:
            moved.append(MovedResult(position, before=end))
    moved.sort(key=lambda result: (result.before, result.position))
    return moved


def _replies_by_result(messages: Sequence[RecordedMessage]) -> dict[int, int]:
    """Return, for the position of each result, the position of the reply that it answers.

    Usually the call comes first. A result whose call comes only later is matched at the end.
    """
    reply_by_result: dict[int, int] = {}
    # By call id: the positions of replies whose call has no result yet.
    unanswered: defaultdict[str, list[int]] = defaultdict(list)
    results_before_call: list[int] = []
    for position, message in enumerate(messages):
        for call in message.calls:
            unanswered[call.id].append(position)
        if message.role != "tool":
            continue
        # Some servers use the same ids in each reply: the newest call is meant.
        if unanswered[message.answers]:
            reply_by_result[position] = unanswered[message.answers].pop()
        else:
            results_before_call.append(position)
    for position in results_before_call:
        later_replies = unanswered[messages[position].answers]
        if later_replies and later_replies[0] > position:
            reply_by_result[position] = later_replies.pop(0)
    return reply_by_result


def _ends_of_replies(messages: Sequence[RecordedMessage]) -> dict[int, int]:
    """Return the position of the message that ends the wait for each reply's results."""
    end_by_reply: dict[int, int] = {}
    next_end = len(messages)
    # From the last message to the first, as each reply is ended by what comes behind it.
    for position in reversed(range(len(messages))):
        message = messages[position]
        if message.role == "assistant":
            end_by_reply[position] = next_end
        is_result_or_note = message.role == "tool" or message.beside
        if message.role in ("assistant", "failure") or not is_result_or_note:
            next_end = position
    return end_by_reply


def _messages_in_new_order(
    messages: Sequence[RecordedMessage], moved: Sequence[MovedResult]
) -> tuple[RecordedMessage, ...]:
    """Return the messages with each moved result in its new place."""
    arriving: defaultdict[int, list[RecordedMessage]] = defaultdict(list)
    for result in moved:
        arriving[result.before].append(messages[result.position])
    leaving = {result.position for result in moved}
    ordered: list[RecordedMessage] = []
    for position, message in enumerate(messages):
        ordered.extend(arriving[position])
        if position not in leaving:
            ordered.append(message)
    ordered.extend(arriving[len(messages)])
    return tuple(ordered)


def _new_position(position: int, moved: Sequence[MovedResult]) -> int:
    """Return where the message that stood at `position` stands now."""
    new_position = position
    for result in moved:
        if result.before <= position:  # It stands before the message now.
            new_position += 1
        if result.position < position:  # It stood before the message.
            new_position -= 1
    return new_position


def _count_messages_still_shared(forked_at: int, moved: Sequence[MovedResult]) -> int:
    """Return how many first messages are still those of the session that this is a fork of.

    A result of the fork that moves to a shared call ends what both have in common.
    """
    shared_count = forked_at
    for result in moved:
        is_from_fork_to_shared = result.before <= forked_at <= result.position
        if is_from_fork_to_shared:
            shared_count = min(shared_count, result.before)
    earlier_moves = [result for result in moved if result.before < shared_count]
    return min(forked_at, _new_position(shared_count, earlier_moves))
