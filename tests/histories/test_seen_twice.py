"""What gateway, ACP, recorder and import saw of the same session is listed and paid once."""

from __future__ import annotations

import random

from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    ModelReplied,
    Origin,
    Received,
    Recorded,
    ReplyPart,
    Stop,
    Text,
    ToolCall,
    Usage,
    UserSaid,
)
from helix_desktop.histories.program_names import SAME_REPLY_SECONDS
from helix_desktop.histories.seen_twice import (
    SeenSession,
    TimedReply,
    find_replies_paid_elsewhere,
    find_replies_seen_live,
    is_session_seen_live,
    names_of_session,
)


def test_a_session_is_recognised_by_its_names_or_else_by_how_it_begins() -> None:
    origin = Origin("pi", "session-1", "/s.jsonl")
    look = Text("I look.")
    call = ToolCall("call-1", "bash", '{"command":"ls"}')
    kept_by_recorder: list[Fact] = [
        ConversationStarted("do it", origin=origin),
        UserSaid((Text("do it"),)),
        ModelReplied((Text("I look.\n"), ToolCall("t9", "bash", '{"command": "ls"}')), "m", Stop.CALLS),
    ]  # fmt: skip

    def kept_by_gateway(
        *parts: ReplyPart, session: str = "", said: str = "do it", agent: str = "pi"
    ) -> set[str]:
        started = ConversationStarted(agent=agent)
        received = Received(("hash",), (2,), session)
        users = UserSaid((Text("<system-reminder>\nBe brief.\n</system-reminder>"), Text(said)))
        return names_of_session([started, users, received, ModelReplied(parts, "m", Stop.END)])

    names = names_of_session(kept_by_recorder)
    assert kept_by_gateway(look, call) & names
    assert not kept_by_gateway(Text("Done."), call) & names
    assert not kept_by_gateway(look, call, said="do that") & names
    assert not kept_by_gateway(look, call, agent="Gemini CLI") & names
    assert kept_by_gateway(look, call, session="session-1") == {"session-1"} < names
    assert not kept_by_gateway(look, call, session="session-2") & names
    spaced = ToolCall("t9", "bash", '{"command": "ls"}')
    silent = [*kept_by_recorder[:2], ModelReplied((spaced,), "m", Stop.CALLS)]
    assert kept_by_gateway(call) & names_of_session(silent)
    other = ToolCall("call-2", "rm", '{"path":"x"}')
    assert not kept_by_gateway(other) & names_of_session(silent)
    assert names_of_session(kept_by_recorder[:2]) == {"session-1"}


def test_replies_that_the_gateway_recorded_too_are_found_by_what_they_say_and_each_stands_for_one() -> (
    None
):
    def timed(ended: float, *parts: ReplyPart, seconds: float = 0.0) -> TimedReply:
        return TimedReply(ended, ModelReplied(parts, "m", Stop.END, seconds=seconds))

    find = find_replies_seen_live
    done = Text("It is done.")
    look = ToolCall("c1", "ls", '{"a":1}')
    named_anew = ToolCall("other", "ls", '{"a": 1}')
    at_gateway = [timed(500, look, seconds=300), timed(510, done), timed(520, Text("Yes."))]
    own = [
        timed(250, named_anew),
        timed(511, Text("First I recalled it."), done),
        timed(521, done),
        timed(700, done),
    ]
    assert find(own, at_gateway) == {0, 1}
    assert find([timed(500, ToolCall("c1", "ls", "{}")), timed(500, look)], at_gateway) == {0}
    assert find([timed(515, Text("No.")), timed(515), timed(400, done)], at_gateway) == set()
    assert find(own, []) == find([], at_gateway) == set()


def test_a_sub_agent_of_claude_code_has_one_name_at_the_gateway_and_in_its_history() -> None:
    """Seen with 2.1.332: the gateway is told "session/id", and the file is "agent-id".
    Its requests were paid twice.
    """
    begun = ConversationStarted(
        origin=Origin("claude-code", "agent-a9f44328", "/f.jsonl", "2.1.332")
    )
    at_gateway = names_of_session([Received((), (), "8086ac59/a9f44328")])
    assert at_gateway & names_of_session([begun])
    assert not at_gateway & names_of_session([Received((), (), "8086ac59")])


# --- Each reply is paid once, whoever saw it and in whatever order


def reply(number: int, chance: random.Random) -> ModelReplied:
    """A reply that says or calls something of its own, as replies do."""
    usage = Usage(1_000 + number, output=number)
    text = Text(f"This is what I say in step {number} of {chance.random()}.")
    call = ToolCall(f"call-{number}-{chance.random()}", "bash", f'{{"command": "step {number}"}}')
    parts: tuple[ReplyPart, ...] = chance.choice([(text,), (text, call), (call,)])
    return ModelReplied(parts, "m", Stop.CALLS, usage, seconds=chance.uniform(0, 200))


def as_file_has_it(seen: ModelReplied, chance: random.Random) -> ModelReplied:
    """The agent's own file may name the model's calls anew, and has no usage of some replies."""
    usage = chance.choice([seen.usage, Usage()])
    return ModelReplied(seen.parts, "m", Stop.CALLS, usage)


def test_each_reply_is_paid_once_however_those_who_saw_it_interleave() -> None:
    for trial in range(200):
        _each_reply_is_paid_once(trial)


def _each_reply_is_paid_once(trial: int) -> None:
    """Sessions of several agents, parts of them without the gateway; the recorder reads each
    reply as it begins or seconds after it ended, and a restored copy has its beginning again.
    """
    chance = random.Random(trial)
    sessions: list[SeenSession] = []
    replies_in_all = 0
    for number in range(chance.randint(1, 3)):
        names = frozenset({f"session-{number}"})
        clock = 1_000.0 * chance.random()
        live: dict[int, TimedReply] = {}
        in_file: dict[int, TimedReply] = {}
        for step in range(1, chance.randint(2, 9)):
            made = reply(step, chance)
            clock += made.seconds + chance.uniform(1, 300)
            replies_in_all += 1
            went_through_gateway = chance.random() < 0.8
            if went_through_gateway:
                live[2 * step] = TimedReply(clock, made)
            noted = clock - chance.choice([made.seconds, 0.0]) + chance.uniform(0, 9)
            in_file[3 * step] = TimedReply(noted, as_file_has_it(made, chance))
        if live:
            sessions.append(SeenSession(names, live, is_live=True))
        sessions.append(SeenSession(names, in_file, is_imported=True))
        shared = dict([*in_file.items()][: chance.randint(0, len(in_file))])
        sessions.append(SeenSession(frozenset({f"copy-{number}"}), shared, is_imported=True))
    # What began here comes first, then imports, each original before its copies.
    ordered = sorted(sessions, key=lambda session: session.is_imported)
    elsewhere = find_replies_paid_elsewhere(ordered)
    counted = sum(
        len(session.replies.keys() - left_out)
        for session, left_out in zip(ordered, elsewhere, strict=True)
    )
    assert counted == replies_in_all


def test_two_sessions_that_say_the_same_at_the_same_time_are_both_paid() -> None:
    same = ModelReplied((Text("Hello."),), "m", Stop.END, Usage(9))
    live = SeenSession(frozenset({"a"}), {2: TimedReply(10.0, same)}, is_live=True)
    other = SeenSession(frozenset({"b"}), {2: TimedReply(12.0, same)}, is_imported=True)
    assert find_replies_paid_elsewhere([live, other]) == [set(), set()]


def test_a_session_that_was_imported_and_goes_on_through_the_gateway_is_paid() -> None:
    same = ModelReplied((Text("Hello."),), "m", Stop.END, Usage(9))
    both = SeenSession(
        frozenset({"a"}), {2: TimedReply(10.0, same)}, is_live=True, is_imported=True
    )
    assert find_replies_paid_elsewhere([both]) == [set()]


def test_a_session_is_listed_again_when_it_goes_on_where_nobody_saw_it_live() -> None:
    done = ModelReplied((Text("Done."),), "m", Stop.END)
    later = ModelReplied((Text("And later."),), "m", Stop.END)
    asked = Recorded("c", 1, 90.0, UserSaid((Text("go"),)))
    live = [asked, Recorded("c", 2, 100.0, done)]
    assert is_session_seen_live([TimedReply(101.0, done)], live)
    assert not is_session_seen_live([TimedReply(101.0, done), TimedReply(200.0, later)], live)
    # Its reply may be under way where it is seen live.
    assert is_session_seen_live([TimedReply(101.0, done)], live[:1])
    assert not is_session_seen_live([TimedReply(91.0 + SAME_REPLY_SECONDS, done)], live[:1])
    assert not is_session_seen_live([], live)
    assert not is_session_seen_live([TimedReply(101.0, done)], [])
