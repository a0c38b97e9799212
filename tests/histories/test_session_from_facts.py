"""A conversation of this program as the writers of the agents' formats take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    DocumentEdited,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Recorded,
    Span,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.histories import session_from_facts
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)

HERE = Origin()
CODEX = Origin("codex", "thread-1", "/f.jsonl", "0.169.0")
OUTPUT = b"the whole output " * 30


def stored(content: bytes, media_type: str = "text/plain") -> Stored:
    return Stored(Digest.of_content(content), len(content), 1, media_type)


def recorded(*made: Fact) -> list[Recorded]:
    return [Recorded("c", at, float(at), fact) for at, fact in enumerate(made, 1)]


def session(
    facts: Sequence[Recorded], *contents: bytes, origin: Origin = HERE, **more: Any
) -> RecordedSession:
    known = {Digest.of_content(content): content for content in (OUTPUT, *contents)}
    return session_from_facts.build_session_from_facts(facts, known.get, "/work", origin, **more)


def said(text: str, *attached: Attachment) -> UserSaid:
    return UserSaid((*([Text(text, 9)] if text else []), *attached))


CALL = ToolCall("c1", "bash", "{}", tokens=2)
REPLY = ModelReplied((Text("I look.", 2), CALL), "m", Stop.CALLS, Usage(9))
RESULT = ToolReturned("c1", stored(OUTPUT), 90)
DONE = ModelReplied((Text("Done. " * 50, 50),), "m", Stop.END)
ENDED = TurnEnded(TurnEnd.DONE)


def test_a_model_chosen_here_has_the_name_that_its_provider_knows() -> None:
    """Claude Code asked Anthropic for "anthropic/claude-opus-4-8". A name that another
    program recorded stays.
    """
    chosen = ModelSet(ModelRole.MAIN, "anthropic/claude-opus-4-8", 200_000)
    here, there = (
        replace(DONE, model=name) for name in (chosen.model, "anthropic/claude-opus-4.1")
    )
    for origin in (HERE, CODEX):
        found = session(recorded(chosen, said("go"), there, said("on"), here), origin=origin)
        names = [one.model for one in found.messages if one.role == "assistant"]
        assert names == ["anthropic/claude-opus-4.1", "claude-opus-4-8"]


def test_all_that_was_said_and_done_is_in_it() -> None:
    found = session(
        recorded(
            ConversationStarted("t"), SystemSet("Be good.", 2), said("go"), REPLY, RESULT, DONE
        )
    )
    assert found.messages == (
        RecordedMessage("system", "Be good.", time=3.0),
        RecordedMessage("user", "go", time=3.0),
        build_recorded_reply(REPLY.parts, model="m", time=4.0, usage=Usage(9)),
        RecordedMessage("tool", OUTPUT.decode(), answers="c1", time=5.0),
        build_recorded_reply(DONE.parts, model="m", time=6.0),
    )
    assert (found.kind, found.session, found.folder, found.version, found.compactions) == (
        "",
        "",
        "/work",
        "",
        (),
    )


def test_where_it_comes_from_stays_known() -> None:
    facts = recorded(ConversationStarted("t"), ConversationStarted("t", origin=CODEX), said("go"))
    assert session_from_facts.origin_of_conversation(facts) == CODEX
    assert session_from_facts.origin_of_conversation(facts[:1]) == Origin()
    found = session(facts, origin=CODEX)
    assert (found.kind, found.session, found.version) == ("codex", "thread-1", "0.169.0")


def test_the_last_system_prompt_that_says_something_is_the_first_message() -> None:
    found = session(
        recorded(SystemSet("One.", 1), said("go"), SystemSet("Two.", 1), SystemSet("", 0))
    )
    assert [(one.role, one.text, one.time) for one in found.messages] == [
        ("system", "Two.", 2.0),
        ("user", "go", 2.0),
    ]
    assert [one.time for one in session(recorded(SystemSet("One.", 1))).messages] == [0.0]


def test_a_result_has_its_pictures_and_says_whether_it_failed() -> None:
    images = stored(b"png", "image/png"), stored(b"gone", "image/png")
    failed = ToolReturned("c1", stored(b"bad"), 1, ok=False, head="bad", images=images)
    found = session(recorded(said("go"), REPLY, failed), b"png")
    picture = RecordedPicture("image/png", b"png")
    assert found.messages[-1] == RecordedMessage(
        "tool", "bad", answers="c1", ok=False, time=3.0, pictures=(picture,)
    )  # fmt: skip


def test_what_was_attached_is_a_picture_or_text() -> None:
    picture = Attachment("a.png", stored(b"png", "image/png"), 9)
    gone = Attachment("b.png", stored(b"gone", "image/png"), 9)
    long = Attachment("long", stored(b"long text"), 9)
    facts = recorded(said("look", picture, gone, long))
    (own,) = session(facts, b"png", b"long text").messages
    missing = "[Attachment: b.png]\n[not available]"
    assert own.text == f"look\n{missing}\n[Attachment: long]\nlong text"
    assert own.pictures == (RecordedPicture("image/png", b"png", "a.png"),)
    (imported,) = session(facts, b"png", b"long text", origin=CODEX).messages
    assert imported.text == f"look\n{missing}\nlong text"


def test_what_a_provider_sealed_of_a_compaction_is_not_the_users_words() -> None:
    """Codex sends it again in each request. It came back as JSON that the user had said."""
    item = b'{"type":"compaction","encrypted_content":"opaque"}'
    sealed = Attachment("block", stored(item, "application/json"), 9)
    facts = recorded(said("go"), said("", sealed), said("and", sealed))
    rest = "[The rest of the summary is sealed: only its provider can read it.]"
    _, alone, beside_words = session(facts, item).messages
    assert (alone.text, alone.sealed) == (rest, (item.decode(),))
    assert (beside_words.text, beside_words.sealed) == (f"and\n{rest}", (item.decode(),))

    # Any other block is given back as it came, and so is a file with such a content.
    for other in (
        Attachment("notes.json", stored(item, "application/json"), 9),
        Attachment("block", stored(b'{"type":"compaction"}', "application/json"), 9),
        Attachment("block", stored(b'{"type":"new","encrypted_content":"x"}', "x/y"), 9),
    ):
        contents = (item, b'{"type":"compaction"}', b'{"type":"new","encrypted_content":"x"}')
        (message,) = session(recorded(said("", other)), *contents).messages
        assert message.sealed == ()
        assert '"type"' in message.text


def test_who_said_it_is_told_by_how_it_begins() -> None:
    facts = recorded(
        said("go"), said("[System message]\nBe brief."), said("<environment_context>x")
    )
    assert [(one.role, one.text, one.beside) for one in session(facts).messages] == [
        ("user", "go", False),
        ("system", "Be brief.", True),
        ("user", "<environment_context>x", True),
    ]


@pytest.mark.parametrize("origin", [HERE, CODEX])
def test_what_an_agent_added_to_a_message_does_not_take_the_users_words_with_it(
    origin: Origin,
) -> None:
    reminder = "<system-reminder>\nToday is Monday.\n</system-reminder>"
    parts = Text(reminder), Text("FIRST about the fee \n"), Text("[Claude Code showed: skills]\nx")
    apart = UserSaid(parts)
    together = said(f"{reminder}\nSECOND about it")
    command = said("<command-message>x</command-message>\n<command-name>/x</command-name>")
    found = session(
        recorded(apart, together, said(reminder), command, said("# AGENTS.md is old")),
        origin=origin,
    )
    assert [(one.text, one.beside) for one in found.messages if not one.beside] == [
        ("FIRST about the fee \n", False), ("SECOND about it", False), ("# AGENTS.md is old", False),
    ]  # fmt: skip
    assert len(found.messages) == 5


def fold(name: str, cover: Span | PartRef, text: str, *, tokens: int = 5, **more: Any) -> Folded:
    kind = FoldKind.HANDOVER if isinstance(cover, Span) else FoldKind.EXCERPT
    return Folded(name, kind, cover, text, tokens, 90, **more)


SHOWN = fold("e1", PartRef(3), 'first lines\n[All of it: recall_cached_content("x")]', why="the other program showed this instead")  # fmt: skip
OWN = fold("e2", PartRef(3), "an excerpt", why="old")


def test_a_result_that_the_other_program_had_shortened_is_what_it_had_shown() -> None:
    facts = recorded(said("go"), REPLY, RESULT, SHOWN)
    assert session(facts, origin=CODEX).messages[-1].text == "first lines"
    assert session(facts).messages[-1].text == OUTPUT.decode()
    assert session(facts, origin=CODEX, is_folded=True).messages[-1].text == "first lines"


def test_folds_made_here_show_only_where_they_are_asked_for() -> None:
    facts = recorded(said("go"), REPLY, RESULT, OWN)
    assert session(facts, is_folded=True).messages[-1].text == "an excerpt"
    assert session(facts).messages[-1].text == OUTPUT.decode()


HEAD = "[Conversation History Summary]\n"


def test_a_handover_of_the_beginning_is_a_compaction() -> None:
    facts = recorded(SystemSet("Be.", 1), said("go"), REPLY, RESULT, DONE, ENDED, fold("h1", Span(2, 5), f"{HEAD}Sum."), said("on"))  # fmt: skip
    assert [one.seq for one in session_from_facts.list_active_compactions(facts)] == [7]
    found = session(facts)
    assert found.compactions == (RecordedCompaction(5, 5, "Sum.", 7.0),)
    assert [one.text for one in found.messages[5:]] == ["on"]
    (folded,) = session(facts, is_folded=True).compactions
    assert folded.text.startswith("Sum.\n\n[recall_cached_content and recall_history are tools")
    facts = recorded(said("go"), REPLY, RESULT, DONE, ENDED, fold("h1", Span(1, 4), f"{HEAD}Sum."))
    (without,) = session(facts).compactions
    assert (without.at, without.text) == (4, "Sum.")


def test_a_handover_of_something_else_is_none() -> None:
    turn = (said("go"), DONE, ENDED)
    facts = recorded(*turn, *turn, fold("h1", Span(4, 5), "Sum."))
    assert session_from_facts.list_active_compactions(facts) == []
    facts = recorded(said("go"), REPLY, RESULT, OWN, DONE)
    assert session_from_facts.list_active_compactions(facts) == []
    too_long = fold("h1", Span(1, 2), "Sum.", tokens=9_999)
    assert session_from_facts.list_active_compactions(recorded(*turn, too_long)) == []


def test_the_users_own_wording_of_a_handover_is_given_to_the_agent() -> None:
    """What a user had corrected in it came back as the model had written it."""
    handover = fold("h1", Span(1, 4), f"{HEAD}Sum.")
    edited = DocumentEdited("h1", f"{HEAD}Corrected.", 5)
    facts = recorded(said("go"), REPLY, RESULT, DONE, ENDED, handover, edited)
    assert [one.text for one in session(facts).compactions] == ["Corrected."]
