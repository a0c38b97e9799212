"""A history as facts: all of it, in order, and the same each time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    Origin,
    PartRef,
    Reasoning,
    Recorded,
    ReplyPart,
    Span,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.histories import history_facts, history_reading
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)
from tests.histories import written
from tests.texts_and_calls import user_texts


class Words:
    """Counts words for tokens."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def drafts(recording: RecordedSession) -> list[history_facts.FactDraft]:
    return history_facts.draft_facts(recording, Words(), lambda child: f"of {child}")


@pytest.mark.parametrize("kind", written.KINDS)
def test_every_kind_becomes_the_same_conversation(tmp_path: Path, kind: str) -> None:
    (recording,) = history_reading.read_history_file(written.KINDS[kind](tmp_path)).recordings
    made = drafts(recording)
    facts = [draft.fact for draft in made if not isinstance(draft.fact, SystemSet)]
    shown = [type(fact).__name__ for fact in facts]
    hosted = ["ModelReplied", "ToolReturned"] if kind == "codex" else []
    assert shown == [
        *("UserSaid", "ModelReplied", "ToolReturned", *hosted, "ModelReplied", "TurnEnded"),
        *("UserSaid", "ModelReplied", "TurnEnded"),
    ]
    output = next(draft for draft in made if isinstance(draft.fact, ToolReturned))
    assert output.contents[0][0].decode() == written.OUTPUT
    assert drafts(recording) == made
    first = next(fact for fact in facts if isinstance(fact, UserSaid))
    assert first.parts[0].text == "list the files"  # type: ignore[union-attr]


def test_reasoning_is_kept_as_it_was_sealed_for_its_own_model(tmp_path: Path) -> None:
    (recording,) = history_reading.read_history_file(written.claude(tmp_path)).recordings
    reply = next(draft.fact for draft in drafts(recording) if isinstance(draft.fact, ModelReplied))
    (thought,) = [part for part in reply.parts if isinstance(part, Reasoning)]
    assert thought.opaque == '{"type":"thinking","thinking":"Let me think.","signature":"signed"}'
    assert (thought.provider, thought.model) == ("anthropic api.anthropic.com", "claude-sonnet-4-5")
    assert (reply.usage.input, reply.usage.cache_read, reply.usage.output) == (100, 60, 20)


def conversation(*, keep: int = 4, summary: str = "short") -> RecordedSession:
    messages = [
        RecordedMessage("user", "begin " + "word " * 50),
        RecordedMessage("assistant", "I look", (ToolCall("c1", "read", "{}"),)),
        RecordedMessage("tool", "output " * 100, answers="c1"),
        RecordedMessage("assistant", "done"),
        RecordedMessage("user", "go on"),
        RecordedMessage("assistant", "yes"),
    ]
    return RecordedSession(
        "f", tuple(messages), "k", "s", compactions=(RecordedCompaction(4, keep, summary),)
    )


def test_a_compaction_is_a_fold_with_what_it_took_the_place_of_beneath() -> None:
    made = [draft.fact for draft in drafts(conversation())]
    fold = next(fact for fact in made if isinstance(fact, Folded))
    facts = [Recorded("c", at, 0.0, fact) for at, fact in enumerate(made, 1)]
    state = build_state(facts)
    assert fold.fold in state.branch.live
    assert "short" in str(state.get_view().blocks[0].content)
    unfolded = build_state([*facts, Recorded("c", len(facts) + 1, 0.0, Unfolded(fold.fold))])
    assert "begin" in str(unfolded.get_view().blocks[0].content)


def test_a_compaction_in_the_middle_of_a_batch_leaves_it_whole() -> None:
    made = [draft.fact for draft in drafts(conversation(keep=2))]
    fold = next(fact for fact in made if isinstance(fact, Folded))
    covered = made[fold.cover.first - 1 : fold.cover.last]  # type: ignore[union-attr]
    assert [type(fact).__name__ for fact in covered] == ["UserSaid", "ModelReplied", "ToolReturned"]


def test_a_summary_that_is_longer_than_what_it_replaces_is_a_message() -> None:
    made = [draft.fact for draft in drafts(conversation(summary="word " * 1_000))]
    assert not any(isinstance(fact, Folded) for fact in made)
    assert any(isinstance(fact, UserSaid) and "word word" in str(fact.parts) for fact in made)


def test_what_answers_no_call_is_an_attachment_and_its_content_is_stored() -> None:
    recording = RecordedSession(
        "f", (RecordedMessage("user", "hi"), RecordedMessage("tool", "lost", answers="nowhere"))
    )
    said = drafts(recording)[1]
    assert isinstance(said.fact, UserSaid)
    assert said.contents[0][0] == b"lost"


def test_what_the_other_program_showed_in_the_place_of_an_output_is_a_fold_over_it() -> None:
    shown = RecordedMessage("tool", "long " * 500, answers="c1", shown="the first lines")
    calling = RecordedMessage("assistant", "", (ToolCall("c1", "read", "{}"),))
    made = drafts(RecordedSession("f", (RecordedMessage("user", "hi"), calling, shown)))
    fold = made[-1].fact
    assert isinstance(fold, Folded)
    assert fold.text.startswith("the first lines\n[All of it: recall_cached_content(")
    assert fold.cover.seq == 3  # type: ignore[union-attr]


def test_a_reply_without_parts_has_reasoning_then_text_then_calls_and_nothing_empty() -> None:
    call = ToolCall("c1", "bash", "{}")
    for message, parts in (
        (
            RecordedMessage("assistant", "I look", (call,), reasoning="hm"),
            [Reasoning, Text, ToolCall],
        ),
        (RecordedMessage("assistant", "I look"), [Text]),
        (RecordedMessage("assistant", "", (call,)), [ToolCall]),
        (RecordedMessage("assistant", "", reasoning="hm"), [Reasoning]),
    ):
        made = drafts(RecordedSession("s", (RecordedMessage("user", "look"), message)))
        (reply,) = (draft.fact for draft in made if isinstance(draft.fact, ModelReplied))
        assert [type(part) for part in reply.parts] == parts


def message_facts(*messages: RecordedMessage, **more: Any) -> list[Fact]:
    return [draft.fact for draft in drafts(RecordedSession("f", messages, **more))]


def said(text: str, **more: Any) -> RecordedMessage:
    return RecordedMessage("user", text, **more)


def replied(text: str, *calls: str, **more: Any) -> RecordedMessage:
    return RecordedMessage(
        "assistant", text, tuple(ToolCall(call, "bash", '{"a": 1}') for call in calls), **more
    )


def returned(call: str, text: str = "out", **more: Any) -> RecordedMessage:
    return RecordedMessage("tool", text, answers=call, **more)


def stored(content: bytes, media_type: str = "text/plain") -> Stored:
    return Stored(
        Digest.of_content(content),
        len(content),
        content.count(b"\n") + 1 if media_type.startswith("text") else 0,
        media_type,
    )


def test_a_turn_as_facts() -> None:
    usage = Usage(10, 5, 0, 3)
    made = message_facts(
        said("list the files", time=1.0),
        replied("I look.", "c1", "c2", model="m", usage=usage, reasoning="let me see"),
        returned("c2", "two\nlines"),
        returned("c1", "bad", ok=False, child="s2"),
        replied("Done."),
    )
    parts: tuple[ReplyPart, ...] = (
        Reasoning("let me see", 3),
        Text("I look.", 2),
        *(ToolCall(c, "bash", '{"a": 1}', 3) for c in ("c1", "c2")),
    )
    assert made == [
        UserSaid((Text("list the files", 3),)),
        ModelReplied(parts, "m", Stop.CALLS, usage),
        ToolReturned("c2", stored(b"two\nlines"), 2, head="two\nlines"),
        ToolReturned("c1", stored(b"bad"), 1, ok=False, head="bad", child="of s2"),
        ModelReplied((Text("Done.", 1),), "", Stop.END),
        TurnEnded(TurnEnd.DONE),
    ]


def test_what_the_system_says_first_is_the_prompt_and_later_a_message() -> None:
    system = RecordedMessage("system", "Be good.")
    later = RecordedMessage("system", "Be brief.", time=7.0)
    made = drafts(RecordedSession("f", (replace(system, time=4.0), system, said("go"), later)))
    assert [draft.fact for draft in made][:2] == [
        SystemSet("Be good.\n\nBe good.", 4),
        UserSaid((Text("go", 1),)),
    ]
    assert made[-3].fact == TurnEnded(TurnEnd.DONE)
    assert made[-2].fact == UserSaid((Text("[System message]\nBe brief.", 4),))
    assert [draft.time for draft in made] == [4.0, 4.0, 7.0, 7.0, 7.0]
    assert message_facts(system) == [SystemSet("Be good.", 2)]
    assert not any(isinstance(fact, SystemSet) for fact in message_facts(said("go")))


def test_times_never_go_back_and_a_draft_knows_its_message() -> None:
    made = drafts(
        RecordedSession(
            "f", (said("one", time=5.0), replied("two", time=3.0), said("three", time=9.0))
        )
    )
    assert [(draft.time, draft.message) for draft in made] == [
        (5.0, 0),
        (5.0, 1),
        (9.0, 2),
        (9.0, 2),
        (9.0, 2),
    ]


def test_turns_end_as_they_ended() -> None:
    failed = RecordedMessage("failure", "overloaded")
    done = TurnEnded(TurnEnd.DONE)
    stopped = TurnEnded(TurnEnd.STOPPED)
    broken = TurnEnded(TurnEnd.FAILED, "overloaded")
    turns: list[tuple[list[RecordedMessage], list[TurnEnded]]] = [
        ([said("one"), replied("two"), said("three"), replied("four")], [done, done]),
        ([said("one"), replied("", "c1"), said("three")], [stopped, done]),
        ([said("one"), replied("", "c1"), returned("c1"), said("three")], [done, done]),
        ([said("one"), replied("", "c1"), returned("c1")], []),
        ([said("one"), failed, failed], [broken]),
        ([said("one"), replied("", "c1"), failed, said("two")], [broken, done]),
    ]
    for messages, ends in turns:
        assert [fact for fact in message_facts(*messages) if isinstance(fact, TurnEnded)] == ends, (
            messages
        )


def test_what_is_said_while_the_agent_works_steers_it() -> None:
    made = message_facts(
        said("reminder", beside=True),
        said("more", beside=True),
        said("own"),
        said("and", beside=True),
    )
    assert [fact.steering for fact in made if isinstance(fact, UserSaid)] == [
        False,
        True,
        False,
        True,
    ]
    assert [type(fact) for fact in made] == [
        UserSaid,
        UserSaid,
        TurnEnded,
        UserSaid,
        UserSaid,
        TurnEnded,
    ]


@pytest.mark.parametrize(("length", "attached"), [(200, False), (201, True)])
def test_a_long_text_that_nobody_typed_is_an_attachment(length: int, attached: bool) -> None:
    text = ("<note> [about]  it\n" + "x" * length)[:length]
    draft, _ = drafts(RecordedSession("f", (said(text, beside=True),)))
    assert isinstance(draft.fact, UserSaid)
    if not attached:
        assert (draft.fact.parts, draft.contents) == ((Text(text, len(text.split())),), ())
        return
    attachment = Attachment("note about it", stored(text.encode()), 4)
    assert (draft.fact.parts, draft.contents) == (
        (attachment,),
        ((text.encode(), EntryOrigin("user", "note about it")),),
    )
    typed, _ = message_facts(said(text))
    assert isinstance(typed, UserSaid)
    assert typed.parts == (Text(text, 4),)


def test_an_attachment_is_named_by_the_beginning_of_its_first_line() -> None:
    for first, name in (("x" * 70, "x" * 60), ("<>", "text"), ("one\ntwo", "one")):
        fact, _ = message_facts(said(f"{first}\n" + "y" * 200, beside=True))
        assert isinstance(fact, UserSaid)
        assert isinstance(fact.parts[0], Attachment)
        assert fact.parts[0].name == name


def test_pictures_and_files_are_attachments_with_their_size() -> None:
    pictures = (
        RecordedPicture("image/png", b"one"),
        RecordedPicture("text/plain", b"two words", "a.txt"),
    )
    draft, _ = drafts(RecordedSession("f", (said(" ", pictures=pictures),)))
    assert draft.fact == UserSaid(
        (
            Attachment("picture 1", stored(b"one", "image/png"), 1_000),
            Attachment("a.txt", stored(b"two words"), 2),
        )
    )
    assert draft.contents == (
        (b"one", EntryOrigin("user", "picture 1", "image/png")),
        (b"two words", EntryOrigin("user", "a.txt", "text/plain")),
    )
    assert message_facts(said(" ")) == []


def test_an_output_knows_its_call_its_pictures_and_how_it_begins() -> None:
    pictures = RecordedPicture("image/png", b"one"), RecordedPicture("text/plain", b"two")
    long = "x" * 2_001
    call = RecordedMessage("assistant", "", (ToolCall("c1", "bash", '{"a":\n  "' + "y" * 300),))
    *_, draft = drafts(RecordedSession("f", (call, returned("c1", long, pictures=pictures))))
    assert draft.fact == ToolReturned(
        "c1", stored(long.encode()), 1, images=(stored(b"one", "image/png"),)
    )
    about = "y" * 200
    assert draft.contents == (
        (long.encode(), EntryOrigin("bash", about)),
        (b"one", EntryOrigin("bash", about, "image/png")),
    )
    *_, fact = message_facts(call, returned("c1", long[:2_000]))
    assert isinstance(fact, ToolReturned)
    assert fact.head == long[:2_000]


def test_an_output_that_answers_no_call_of_the_last_reply_is_an_attachment() -> None:
    lost = UserSaid(
        (Text("[An output that answers no call]", 8), Attachment("output.txt", stored(b"out"), 1))
    )
    (draft,) = drafts(RecordedSession("f", (returned("c1"),)))
    assert (draft.fact, draft.contents) == (lost, ((b"out", EntryOrigin("tool", "")),))
    made = message_facts(
        said("go"),
        replied("", "c1"),
        returned("c1"),
        returned("c1"),
        replied("on", "c2"),
        returned("c1"),
    )
    assert made.count(replace(lost, steering=True)) == 2


def test_a_reply_of_nothing_is_none() -> None:
    assert message_facts(said("go"), replied("")) == [
        UserSaid((Text("go", 1),)),
        TurnEnded(TurnEnd.DONE),
    ]


def test_what_the_other_program_showed_is_a_fold_only_where_it_is_shorter() -> None:
    def folds(words: int) -> list[Folded]:
        shown = returned("c1", "word " * words, shown="the first")
        return [
            fact
            for fact in message_facts(said("go"), replied("", "c1"), shown)
            if isinstance(fact, Folded)
        ]

    assert folds(6) == []
    (fold,) = folds(7)
    assert (fold.fold, fold.kind, fold.cover, fold.tokens, fold.tokens_before) == (
        "excerpt-1",
        FoldKind.EXCERPT,
        PartRef(3),
        6,
        7,
    )
    assert (fold.entries, fold.why) == (
        (Digest.of_content(b"word " * 7),),
        "the other program showed this instead",
    )


def compacted(*messages: RecordedMessage, at: int, keep: int, text: str = "short") -> list[Fact]:
    return message_facts(*messages, compactions=(RecordedCompaction(at, keep, text, 5.0, "why"),))


TURNS = (said("word " * 50), replied("word " * 50), said("and " * 9), replied("so " * 9))


@pytest.mark.parametrize(("keep", "last"), [(1, 1), (2, 2), (3, 4), (4, 5)])
def test_a_compaction_covers_what_it_took_the_place_of(keep: int, last: int) -> None:
    made = compacted(*TURNS, at=4, keep=keep)
    (fold,) = [fact for fact in made if isinstance(fact, Folded)]
    assert made[-2:] == [fold, TurnEnded(TurnEnd.DONE)], "it stands behind the last message"
    assert (fold.fold, fold.kind, fold.number, fold.why) == (
        "handover-1",
        FoldKind.HANDOVER,
        1,
        "why",
    )
    assert fold.cover == Span(1, last)
    assert fold.text == "[Conversation History Summary]\nshort"
    assert fold.tokens == 4


def test_compactions_are_numbered_and_one_may_cover_another() -> None:
    compactions = (RecordedCompaction(2, 2, "short"), RecordedCompaction(4, 4, "shorter"))
    made = message_facts(*TURNS, compactions=compactions)
    assert [(fact.fold, fact.number) for fact in made if isinstance(fact, Folded)] == [
        ("handover-1", 1),
        ("handover-2", 2),
    ]


def test_a_compaction_of_nothing_is_a_message() -> None:
    made = compacted(*TURNS, at=0, keep=0)
    assert made[0] == UserSaid((Text("short", 4),))
    made = compacted(*TURNS, at=3, keep=0)
    assert "short" in user_texts(made)
    made = compacted(*TURNS, at=2, keep=2, text="word " * 200)
    assert made[2] == UserSaid((Text("word " * 200, 203),), steering=True)
    assert not any(isinstance(fact, Folded) for fact in made)
    state = build_state(Recorded("c", at, 0.0, fact) for at, fact in enumerate(made, 1))
    assert not state.branch.live


def test_a_call_is_not_parted_from_its_result_by_a_compaction() -> None:
    asked = (said("word " * 50), replied("word " * 50, "c1"))
    wait = said("wait", beside=True)
    for before in ((), (replied("so " * 9, "c0"), returned("c0"))):
        messages = *asked[:1], *before, asked[1], wait, returned("c1"), replied("done")
        made = compacted(*messages, at=len(messages), keep=len(before) + 2)
        assert not any(isinstance(fact, Folded) for fact in made), (
            "its result is among what was kept"
        )
    done = *asked, returned("c1"), replied("", "c2"), wait, returned("c2"), replied("done")
    for at, keep, last in ((7, 3, 3), (7, 2, 3), (6, 6, 6)):
        (fold,) = [fact for fact in compacted(*done, at=at, keep=keep) if isinstance(fact, Folded)]
        assert fold.cover == Span(1, last)


def test_a_very_long_text_is_not_searched_for_a_title() -> None:
    title = history_facts.title_of_recording
    for spaces in (1_999, 2_000):
        assert title(RecordedSession("f", (said(" " * spaces + "word"),))) == "w" * (2_000 - spaces)


def test_a_title_is_short_and_shows_no_key() -> None:
    title = history_facts.title_of_recording
    assert title(RecordedSession("f", (), title="  A\n title ")) == "A title"
    assert (
        title(RecordedSession("f", (said("aside", beside=True), replied("hm"), said("x" * 90))))
        == "x" * 80
    )
    assert title(RecordedSession("f", ())) == ""
    key = "sk-ant-api03-" + "a1B2" * 20
    assert key not in title(RecordedSession("f", (said(f"use {key}"),)))
    assert title(RecordedSession("f", (said(f"use {key}"),))).startswith("use ")


def test_how_a_conversation_begins_says_where_it_comes_from() -> None:
    recording = RecordedSession(
        "/f.jsonl", (said("go"),), "codex", "s1", version="1", parent_call="c1"
    )
    origin = Origin("codex", "s1", "/f.jsonl", "1")
    assert history_facts.build_started_fact(recording) == ConversationStarted("go", origin=origin)
    assert history_facts.build_started_fact(
        recording, parent="p", fork=("q", 3)
    ) == ConversationStarted("go", "p", "c1", "q", 3, origin)


def test_a_summary_says_its_text_wherever_that_stands() -> None:
    for text in ("short", "long " * 100):
        draft, _ = drafts(RecordedSession("f", (said(text, beside=True, is_summary=True),)))
        assert draft.is_summary
        assert (
            history_facts.summary_text_of_draft(draft) == f"[Conversation History Summary]\n{text}"
        )
    assert not drafts(RecordedSession("f", (said("short"),)))[0].is_summary


def test_facts_are_compared_by_all_but_where_they_stand() -> None:
    reply = ModelReplied((Text("a", 1),), "", Stop.END)
    assert history_facts.comparable_text(reply) == history_facts.comparable_text(
        replace(reply, saw=9)
    )
    assert history_facts.comparable_text(reply) != history_facts.comparable_text(
        replace(reply, model="m")
    )


def test_an_earlier_import_is_known_by_what_was_said_and_done() -> None:
    made = drafts(
        RecordedSession(
            "f",
            (
                RecordedMessage("system", "Be."),
                said("go"),
                replied("", "c1"),
                returned("c1"),
                said("on"),
            ),
        )
    )
    assert [type(draft.fact) for draft in made if not draft.is_message_or_result] == [
        TurnEnded,
        TurnEnded,
    ]


def test_a_title_is_what_the_user_wrote_and_not_what_the_agent_added_to_it() -> None:
    reminder = "<system-reminder>\nToday is the 24th.\n</system-reminder>"
    said = [RecordedMessage("user", text) for text in (reminder, f"{reminder}\nMend it, please.")]
    assert history_facts.title_of_recording(RecordedSession("f", tuple(said))) == "Mend it, please."
