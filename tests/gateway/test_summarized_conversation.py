"""Which conversation an agent's own summary stands for, told by what is kept behind it."""

from __future__ import annotations

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.facts import Folded, FoldKind, Span, Text, ToolCall, ToolReturned
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gateway.summarized_conversation import (
    ComparedReply,
    KeptEnd,
    MessageBehindSummary,
    find_kept_end,
    has_imported_summary,
    keeps_nothing,
    list_messages_behind_summary,
)
from helix_desktop.histories.history_facts import SUMMARY
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker
from tests.engine.talk import Talk, stored

SHORT = "A summary."


def message(speaker: Speaker, *pieces: Piece) -> ProtocolMessage:
    return ProtocolMessage(speaker, (), pieces)


def text(words: str) -> Piece:
    return Piece(PieceKind.TEXT, words)


def result(words: str, call: str) -> Piece:
    return Piece(PieceKind.RESULT, words, id=call)


def call(name: str, arguments: str) -> Piece:
    return Piece(PieceKind.CALL, arguments, id="1", name=name)


# --- What is compared


@pytest.mark.parametrize(
    ("sent", "recorded", "same"),
    [
        (ComparedReply((), "abc"), ComparedReply((), "abc"), True),
        (ComparedReply((), "recalled abc"), ComparedReply((), "abc"), True),
        (ComparedReply((), "abc"), ComparedReply((), "xabc"), False),
        (ComparedReply((), "abc"), ComparedReply((), ""), False),
        (ComparedReply((), ""), ComparedReply((), ""), False),
        (ComparedReply(("read {}",), "abc"), ComparedReply(("read {}",), "other"), True),
        (ComparedReply(("read {}",), "abc"), ComparedReply((), "abc"), False),
        (ComparedReply((), "abc"), ComparedReply(("read {}",), "abc"), False),
    ],
)
def test_a_reply_is_the_same_by_its_calls_or_else_by_its_letters(
    sent: ComparedReply, recorded: ComparedReply, same: bool
) -> None:
    assert sent.is_same(recorded) is same


def test_what_stands_behind_the_summary_is_listed_without_what_the_agent_added() -> None:
    behind = list_messages_behind_summary(
        [
            message(Speaker.USER, text(SHORT)),
            message(Speaker.ASSISTANT, text("Got it. Thanks for the additional context!")),
            message(
                Speaker.USER, text("go  on\nplease"), result("out", "t1"), result("more", "call-3")
            ),
            message(Speaker.ASSISTANT, text("I  do."), call("read", '{"path":  "a"}')),
            message(Speaker.ASSISTANT, text("Got it. Thanks for the additional context!")),
        ],
        SHORT,
    )
    assert behind == [
        MessageBehindSummary(
            words="go on please",
            results=frozenset([Digest.of_content(b"out"), Digest.of_content(b"more")]),
            answers=frozenset(["t1"]),
        ),
        MessageBehindSummary(reply=ComparedReply(("read {'path': 'a'}",), "Ido.")),
        MessageBehindSummary(reply=ComparedReply((), "Gotit.Thanksfortheadditionalcontext!")),
    ]


def test_words_beside_the_summary_are_kept_with_it() -> None:
    (first, second) = list_messages_behind_summary(
        [message(Speaker.USER, text(SHORT), text("and this")), message(Speaker.USER)], SHORT
    )
    assert first.words == "and this"
    assert second == MessageBehindSummary()


def test_only_the_users_next_words_are_nothing_that_was_kept() -> None:
    words = MessageBehindSummary(words="next")
    assert keeps_nothing([])
    assert keeps_nothing([words])
    assert not keeps_nothing([words, MessageBehindSummary(reply=ComparedReply((), "x"))])
    assert not keeps_nothing([MessageBehindSummary(results=frozenset([Digest.of_content(b"x")]))])


# --- The end that was kept


LONG = "words that only this conversation has " * 6


def ended() -> Talk:
    talk = Talk()
    talk.user("begin")
    talk.reply("Working on it.")
    talk.user("and then?")
    talk.reply(LONG, "t1:read")
    talk.add(ToolReturned("t1", stored("out"), 1))
    return talk


def reply_of(talk: str, *calls: str) -> MessageBehindSummary:
    return MessageBehindSummary(reply=ComparedReply(calls, "".join(talk.split())))


READ = "read {'path': 'a.py'}"


def test_the_kept_end_reaches_to_the_last_message_without_a_gap() -> None:
    talk = ended()
    results = MessageBehindSummary(words="new", results=frozenset([Digest.of_content(b"out")]))
    kept = find_kept_end(talk.state, [reply_of(LONG, READ), results])
    assert kept is not None
    assert (kept.seq_before, kept.messages) == (3, 2)
    assert kept.characters == len("".join(LONG.split())) + len(READ) + len("out")
    assert kept.is_certain is (kept.characters >= 200)
    whole = find_kept_end(
        talk.state,
        [
            MessageBehindSummary(words="begin"),
            reply_of("Working on it."),
            MessageBehindSummary(words="and then?"),
            reply_of(LONG, READ),
            results,
        ],
    )
    assert whole is not None
    assert (whole.seq_before, whole.messages) == (0, 5)
    assert whole.characters == kept.characters + len("beginWorkingonit.and then?")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [reply_of("Working on it.")],  # It goes on.
        [reply_of("Working on it."), reply_of(LONG, READ)],  # A message between is missing.
        [reply_of(LONG, READ)],  # Its result is missing.
        [reply_of(LONG, "read {'path': 'b.py'}"), MessageBehindSummary(answers=frozenset(["t1"]))],
        [reply_of(LONG, READ), MessageBehindSummary(results=frozenset([Digest.of_content(b"o")]))],
    ],
)
def test_what_does_not_reach_to_the_end_is_another_conversation(
    messages: list[MessageBehindSummary],
) -> None:
    assert find_kept_end(ended().state, messages) is None


def test_a_result_is_known_by_its_call_too_and_by_hidden_ones_nothing() -> None:
    by_call = MessageBehindSummary(answers=frozenset(["t1"]))
    talk = ended()
    assert find_kept_end(talk.state, [reply_of(LONG, READ), by_call]) is not None
    talk.reply("", "h1:recall_history")
    talk.add(ToolReturned("h1", stored("hidden"), 1))
    found = find_kept_end(talk.state, [reply_of(LONG, READ), by_call])
    assert found is not None
    assert found.messages == 2
    # The agent was sent these words with the reply that follows the recall.
    talk.reply("I look it up.", "h2:recall_history")
    talk.add(ToolReturned("h2", stored("hidden"), 1))
    talk.reply("It is 7.")
    one_reply = reply_of("I look it up. It is 7.")
    assert find_kept_end(talk.state, [reply_of(LONG, READ), by_call, one_reply]) is not None
    assert find_kept_end(talk.state, [reply_of(LONG, READ), by_call]) is None


@pytest.mark.parametrize(("characters", "certain"), [(199, False), (200, True)])
def test_little_in_common_is_not_enough(characters: int, certain: bool) -> None:
    assert KeptEnd(1, 1, characters).is_certain is certain


# --- The summary that its file has


def imported(text_of_fold: str, kind: FoldKind = FoldKind.HANDOVER) -> Talk:
    talk = Talk()
    first = talk.user("begin")
    talk.add(Folded("f1", kind, Span(first, first), text_of_fold, 10, 20))
    return talk


LETTERS = "x" * 100


@pytest.mark.parametrize(
    ("fold", "summary", "has_it"),
    [
        (LETTERS, f"<summary> {LETTERS} </summary>", True),
        (f"{SUMMARY}\n{LETTERS}", LETTERS, True),
        (LETTERS[1:], LETTERS[1:], False),
        (LETTERS, LETTERS + "y" * 150, True),
        (LETTERS, LETTERS + "y" * 151, False),
        (LETTERS, "z" * 100, False),
        ("x " * 100, "x\n" * 100, True),
    ],
)
def test_a_summary_is_the_imported_one_by_all_of_its_letters(
    fold: str, summary: str, has_it: bool
) -> None:
    assert has_imported_summary(imported(fold).state, summary) is has_it


def test_other_folds_are_no_summaries() -> None:
    assert not has_imported_summary(imported(LETTERS, FoldKind.OBSERVATIONS).state, LETTERS)
    assert not has_imported_summary(Talk().state, LETTERS)


def test_the_facts_of_a_reply_compare_like_the_pieces_of_a_request() -> None:
    talk = Talk()
    talk.user("begin")
    arguments = '{"b": 1, "a":2}'
    talk.add(
        facts.ModelReplied(
            (Text("Some words"), ToolCall("t1", "run", arguments)), "m", facts.Stop.CALLS
        )
    )
    sent = message(Speaker.ASSISTANT, text("Some\nwords"), call("run", '{"b":1,"a":2}'))
    (behind,) = list_messages_behind_summary([sent], SHORT)
    assert find_kept_end(talk.state, [behind]) is not None
