"""Tells what several ways saw of one session of an agent, so that it is listed and paid once.

The gateway and the Agent Client Protocol see a session as it happens, the recorder and
an import read it from the agent's own files later. They know it by different names, and
the times of their replies differ by seconds. All functions here are pure.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import NAMES, SAME_REPLY_SECONDS
from helix_desktop.histories.session_writing import format_iso_time
from helix_desktop.json_values import parse_json_or_none

CHARACTERISTIC_WORDS = 8  # So many last words of a text tell it from others.


@dataclass(frozen=True, slots=True)
class TimedReply:
    """A reply, and when it had ended."""

    ended: float
    reply: facts.ModelReplied


@dataclass(frozen=True, slots=True)
class SeenSession:
    """What one conversation has of an agent's session. `replies`: by their numbers in it.

    `is_live`: it was seen as it happened. `is_imported`: it was read from a file, and may
    be what another conversation saw live.
    """

    names: frozenset[str]
    replies: dict[int, TimedReply]
    is_live: bool = False
    is_imported: bool = False


def is_seen_live(recorded_facts: Iterable[facts.Recorded]) -> bool:
    """Whether an agent is, or was, connected to the conversation or works in it over ACP."""
    return any(isinstance(recorded.fact, facts.Received) for recorded in recorded_facts)


def find_replies_paid_elsewhere(sessions: Sequence[SeenSession]) -> list[set[int]]:
    """Return, for each session, the numbers of the replies that another one counts.

    `sessions`: originals before their copies. A reply that was seen live and read from a
    file counts where it was seen live, because that has what it really cost. A copy of
    a session has the times and usages of the original.
    """
    live: list[SeenSession] = []
    paid = set[tuple[str, int, int]]()
    elsewhere = []
    for session in sessions:
        if session.is_live:
            live.append(session)
        others: list[TimedReply] = []
        if session.is_imported:
            for other in live:
                # A session that was imported may go on through the gateway.
                if other is not session and other.names & session.names:
                    others.extend(other.replies.values())
        seen_live = find_replies_seen_live(list(session.replies.values()), others)
        counted: set[int] = set()
        identities: list[tuple[str, int, int]] = []
        for position, (seq, reply) in enumerate(session.replies.items()):
            identity = _identity_of_payment(reply)
            identities.append(identity)
            if position in seen_live or identity in paid:
                counted.add(seq)
        paid.update(identities)
        elsewhere.append(counted)
    return elsewhere


def _identity_of_payment(reply: TimedReply) -> tuple[str, int, int]:
    """Return what a copy of a reply has in common with it. Files have times in milliseconds."""
    usage = reply.reply.usage
    return format_iso_time(reply.ended), usage.input, usage.output


def is_session_seen_live(own: Sequence[TimedReply], live: Iterable[facts.Recorded]) -> bool:
    """Whether a session's newest reply that says something was seen live, or may be under way
    there. If so, the session need not be listed again.
    """
    said: list[facts.Recorded] = []
    replies: list[TimedReply] = []
    for recorded in live:
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned):
            said.append(recorded)
        if isinstance(fact, facts.ModelReplied):
            replies.append(TimedReply(recorded.time, fact))
    newest = [reply for reply in own if keys_of_reply(reply.reply)][-1:]
    if said and newest and not isinstance(said[-1].fact, facts.ModelReplied):
        return newest[0].ended <= said[-1].time + SAME_REPLY_SECONDS
    return bool(find_replies_seen_live(newest, replies))


def find_replies_seen_live(own: Sequence[TimedReply], live: Sequence[TimedReply]) -> set[int]:
    """Return the positions of an agent's own replies that were also seen live.

    They call or say the same at about the same time. Each one seen live stands for one.
    """
    others = sorted(live, key=lambda other: other.ended)
    ends = [other.ended for other in others]
    keys_left = [keys_of_reply(other.reply) for other in others]
    longest = max((other.reply.seconds for other in others), default=0.0)
    seen: set[int] = set()
    for position, reply in enumerate(own):
        keys = keys_of_reply(reply.reply)
        # The agent may note a reply as soon as it begins.
        first = bisect_left(ends, reply.ended - SAME_REPLY_SECONDS)
        behind = bisect_right(ends, reply.ended + longest + SAME_REPLY_SECONDS)
        best = -1
        most_in_common = 0
        for candidate in range(first, behind):
            in_common = len(keys_left[candidate] & keys)
            if _has_begun_by(others[candidate], reply.ended) and in_common > most_in_common:
                best = candidate
                most_in_common = in_common
        if best >= 0:
            keys_left[best] = set()
            seen.add(position)
    return seen


def _has_begun_by(reply: TimedReply, time: float) -> bool:
    return reply.ended - reply.reply.seconds - SAME_REPLY_SECONDS <= time


def names_of_session(said: Sequence[facts.Fact]) -> set[str]:
    """Return names that those who saw the same session have in common.

    If the agent sends no name, its own name, the first typed words and the first reply are one.
    """
    sent = {fact.session for fact in said if isinstance(fact, facts.Received)} - {""}
    if sent:
        # Claude Code sends "session/id" for a sub-agent, whose history is named "agent-id".
        below = {f"agent-{name.rpartition('/')[2]}" for name in sent if "/" in name}
        return sent | below
    starts: list[facts.ConversationStarted] = []
    replies: list[facts.ModelReplied] = []
    for fact in said:
        if isinstance(fact, facts.ConversationStarted):
            starts.append(fact)
        elif isinstance(fact, facts.ModelReplied):
            replies.append(fact)
    names = {fact.origin.session for fact in starts}
    if replies and replies[0].parts:
        names.add(_name_by_beginning(starts, said, replies[0]))
    return names - {""}


def _name_by_beginning(
    starts: Sequence[facts.ConversationStarted],
    said: Sequence[facts.Fact],
    first_reply: facts.ModelReplied,
) -> str:
    """Return the agent, the first words that were typed, and what the model replied to them."""
    agents = [fact.agent or NAMES.get(fact.origin.kind, "") for fact in starts]
    users = [fact.parts for fact in said if isinstance(fact, facts.UserSaid)]
    typed = (split_off_agent_additions(parts)[0].strip() for parts in users)
    texts = [part.text for part in first_reply.parts if isinstance(part, facts.Text)]
    reply = " ".join(texts).split()
    content = [next(filter(None, agents), ""), next(filter(None, typed), ""), *reply]
    if not reply:
        for part in first_reply.parts:
            if isinstance(part, facts.ToolCall):
                content.append(f"{part.name} {parse_json_or_none(part.arguments)}")
    return json.dumps(content)


def keys_of_reply(reply: facts.ModelReplied) -> set[str]:
    """Return the calls, their ids, which some agents make themselves, and the last
    words of each text.

    Before these may stand what the model said before it recalled something.
    """
    keys: set[str] = set()
    for part in reply.parts:
        if isinstance(part, facts.ToolCall):
            keys.add(f"{part.name} {parse_json_or_none(part.arguments)}")
            keys.add(part.id)
        elif isinstance(part, facts.Text):
            keys.add(" ".join(part.text.split()[-CHARACTERISTIC_WORDS:]))
    return keys - {""}
