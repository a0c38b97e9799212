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
from helix_desktop.histories.added_formats import name_of_program
from helix_desktop.histories.program_names import SAME_REPLY_SECONDS
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
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.Received):
            return True
    return False


def find_replies_paid_elsewhere(sessions: Sequence[SeenSession]) -> list[set[int]]:
    """Return, for each session, the numbers of the replies that another one counts.

    `sessions`: originals before their copies. A reply that was seen live and read from a
    file counts where it was seen live, because that has what it really cost. A copy of
    a session has the times and usages of the original.
    """
    live_sessions: list[SeenSession] = []
    counted_payments = set[tuple[str, int, int]]()
    seqs_by_session: list[set[int]] = []
    for session in sessions:
        if session.is_live:
            live_sessions.append(session)
        live_replies: list[TimedReply] = []
        if session.is_imported:
            for live_session in live_sessions:
                # A session that was imported may go on through the gateway.
                if live_session is not session and live_session.names & session.names:
                    live_replies.extend(live_session.replies.values())
        seen_live = find_replies_seen_live(list(session.replies.values()), live_replies)
        paid_elsewhere: set[int] = set()
        payments: list[tuple[str, int, int]] = []
        for position, (seq, reply) in enumerate(session.replies.items()):
            payment = _identity_of_payment(reply)
            payments.append(payment)
            if position in seen_live or payment in counted_payments:
                paid_elsewhere.add(seq)
        counted_payments.update(payments)
        seqs_by_session.append(paid_elsewhere)
    return seqs_by_session


def _identity_of_payment(reply: TimedReply) -> tuple[str, int, int]:
    """Return what a copy of a reply has in common with it. Files have times in milliseconds."""
    usage = reply.reply.usage
    return format_iso_time(reply.ended), usage.input, usage.output


def is_session_seen_live(
    own_replies: Sequence[TimedReply], live_facts: Iterable[facts.Recorded]
) -> bool:
    """Whether a session's newest reply that says something was seen live, or may be under way
    there. If so, the session need not be listed again.
    """
    live_messages: list[facts.Recorded] = []
    live_replies: list[TimedReply] = []
    for recorded in live_facts:
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned):
            live_messages.append(recorded)
        if isinstance(fact, facts.ModelReplied):
            live_replies.append(TimedReply(recorded.time, fact))
    replies_with_content = [reply for reply in own_replies if keys_of_reply(reply.reply)]
    if not replies_with_content:
        return False
    newest_reply = replies_with_content[-1]
    if live_messages:
        newest_message = live_messages[-1]
        is_reply_due = not isinstance(newest_message.fact, facts.ModelReplied)
        if is_reply_due:
            return newest_reply.ended <= newest_message.time + SAME_REPLY_SECONDS
    return bool(find_replies_seen_live([newest_reply], live_replies))


def find_replies_seen_live(
    own_replies: Sequence[TimedReply], live_replies: Sequence[TimedReply]
) -> set[int]:
    """Return the positions of an agent's own replies that were also seen live, which means as they
    happened: by the gateway, for example.

    Both call or say the same (their keys) at about the same time. A reply that was seen live stands
    for one of the agent's own at most: for the first with which it has most keys in common.
    """
    candidates = [_LiveCandidate(live, keys_of_reply(live.reply)) for live in live_replies]
    candidates.sort(key=lambda candidate: candidate.live.ended)
    end_times = [candidate.live.ended for candidate in candidates]
    durations = [live.reply.seconds for live in live_replies]
    longest_seconds = max(durations, default=0.0)
    seen_live: set[int] = set()
    for position, own_reply in enumerate(own_replies):
        # The agent may note a reply as soon as it begins.
        latest_end = own_reply.ended + longest_seconds + SAME_REPLY_SECONDS
        first = bisect_left(end_times, own_reply.ended - SAME_REPLY_SECONDS)
        end = bisect_right(end_times, latest_end)
        match = _find_best_candidate(candidates[first:end], own_reply)
        if match is not None:
            match.keys = set()  # It cannot stand for another reply, too.
            seen_live.add(position)
    return seen_live


@dataclass(slots=True)
class _LiveCandidate:
    """A reply that was seen live, and its keys; none once it stands for one of the agent's own."""

    live: TimedReply
    keys: set[str]


def _find_best_candidate(
    candidates: Sequence[_LiveCandidate], own_reply: TimedReply
) -> _LiveCandidate | None:
    """Return the first of those with most keys of a reply, or None if none has any."""
    own_keys = keys_of_reply(own_reply.reply)
    best: _LiveCandidate | None = None
    most_common_keys = 0
    for candidate in candidates:
        common_key_count = len(candidate.keys & own_keys)
        if common_key_count <= most_common_keys:
            continue
        if _has_begun_by(candidate.live, own_reply.ended):
            best = candidate
            most_common_keys = common_key_count
    return best


def _has_begun_by(reply: TimedReply, time: float) -> bool:
    return reply.ended - reply.reply.seconds - SAME_REPLY_SECONDS <= time


def names_of_session(session_facts: Sequence[facts.Fact]) -> set[str]:
    """Return names that those who saw the same session have in common.

    The gateway learns the name that the agent sends with its requests. If it sends none, the agent,
    the first typed words and the first reply together are a name.
    """
    sent_names = _names_sent_by_agent(session_facts)
    if sent_names:
        return sent_names
    starts: list[facts.ConversationStarted] = []
    replies: list[facts.ModelReplied] = []
    for fact in session_facts:
        if isinstance(fact, facts.ConversationStarted):
            starts.append(fact)
        elif isinstance(fact, facts.ModelReplied):
            replies.append(fact)
    names = {fact.origin.session for fact in starts}
    if replies and replies[0].parts:
        names.add(_name_by_beginning(starts, session_facts, replies[0]))
    return names - {""}


def _names_sent_by_agent(session_facts: Sequence[facts.Fact]) -> set[str]:
    names: set[str] = set()
    for fact in session_facts:
        if not isinstance(fact, facts.Received) or not fact.session:
            continue
        names.add(fact.session)
        _, slash, subagent_id = fact.session.rpartition("/")
        if slash:
            # Claude Code sends "session/id" for a sub-agent, whose history is named "agent-id".
            names.add(f"agent-{subagent_id}")
    return names


def _name_by_beginning(
    starts: Sequence[facts.ConversationStarted],
    session_facts: Sequence[facts.Fact],
    first_reply: facts.ModelReplied,
) -> str:
    """Return the agent, the first words that were typed, and what the model replied to them."""
    first_agent = ""
    for fact in starts:
        first_agent = fact.agent or name_of_program(fact.origin.kind)
        if first_agent:
            break
    words_of_reply: list[str] = []
    calls_of_reply: list[str] = []
    for part in first_reply.parts:
        if isinstance(part, facts.Text):
            words_of_reply.extend(part.text.split())
        elif isinstance(part, facts.ToolCall):
            calls_of_reply.append(f"{part.name} {parse_json_or_none(part.arguments)}")
    content = [first_agent, _first_typed_words(session_facts)]
    content.extend(words_of_reply or calls_of_reply)
    return json.dumps(content)


def _first_typed_words(session_facts: Sequence[facts.Fact]) -> str:
    for fact in session_facts:
        if isinstance(fact, facts.UserSaid):
            words, _additions = split_off_agent_additions(fact.parts)
            if words.strip():
                return words.strip()
    return ""


def keys_of_reply(reply: facts.ModelReplied) -> set[str]:
    """Return the calls, their ids, which some agents make themselves, and the last
    words of each text.

    Before these may stand what the model said before it recalled something.
    """
    keys: set[str] = set()
    for part in reply.parts:
        if isinstance(part, facts.ToolCall):
            arguments = parse_json_or_none(part.arguments)
            keys.add(f"{part.name} {arguments}")
            keys.add(part.id)
        elif isinstance(part, facts.Text):
            last_words = part.text.split()[-CHARACTERISTIC_WORDS:]
            keys.add(" ".join(last_words))
    return keys - {""}
