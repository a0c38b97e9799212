"""What each message of an agent's request becomes: as it came, with changed parts, or replaced."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FrameType

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.agent_additions import SYSTEM_MESSAGE
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Attachment,
    Excluded,
    FoldKind,
    ModelReplied,
    PartRef,
    Pinned,
    Reasoning,
    ReplyPart,
    Span,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.message_blocks import EXCLUDED, NOTE_TOKENS
from helix_desktop.engine.messages import Image, View
from helix_desktop.gateway import view_entries
from helix_desktop.gateway.view_entries import (
    ChangedMessage,
    ChangedPart,
    Entry,
    HiddenReply,
    HiddenResult,
    InsertedText,
    UnchangedMessage,
    ViewEntries,
    ViewEntriesBuilder,
    parse_hidden_messages,
)
from helix_desktop.store.in_memory_stores import MemoryJournal
from tests.engine.talk import Talk, stored

Contents = Mapping[Stored, str | Image]
OUTPUT = stored("output of c1")
PICTURE = replace(stored("a picture"), media_type="image/png")
NOTE = f'{{"note": "{EXCLUDED}"}}'
CLEARED = '{"path": "a.py", "cached": "text of m"}'


async def build(
    talk: Talk,
    seqs: Sequence[int],
    contents: Contents | None = None,
    view: View | None = None,
    before: ViewEntries | None = None,
) -> tuple[ViewEntriesBuilder, ViewEntries]:
    builder = ViewEntriesBuilder(
        Conversation(MemoryJournal(), "talk", talk.state), seqs, contents or {}
    )
    return builder, await builder.build_entries(view or talk.view(), before)


async def entries(talk: Talk, seqs: Sequence[int], contents: Contents | None = None) -> list[Entry]:
    _, shown = await build(talk, seqs, contents)
    return list(shown.entries)


def worked() -> Talk:
    """A question (1), a reply with a call (2), its output (3), an answer (4) and
    another question (5).
    """
    talk = Talk()
    talk.user("look around")
    talk.reply("I look", "c1")
    talk.output("c1")
    talk.reply("fine")
    talk.user("go on")
    return talk


def marker(talk: Talk, ref: PartRef) -> None:
    talk.fold("m", ref, kind=FoldKind.MARKER)


async def test_what_no_fold_and_no_user_changed_goes_on_as_it_came() -> None:
    talk = worked()
    builder, shown = await build(talk, (1, 2, 3, 4, 5))
    assert shown == ViewEntries(
        (
            UnchangedMessage(0),
            UnchangedMessage(1),
            UnchangedMessage(2),
            UnchangedMessage(3),
            UnchangedMessage(4),
        ),
        talk.view().blocks,
        5,
        (),
        5,
        is_plain=True,
    )
    assert shown.seq == 5
    assert builder.whole
    assert builder.missing == {}


@pytest.mark.parametrize(
    ("ref", "at", "part", "answers"),
    [
        (PartRef(3), 2, ChangedPart("result", "c1", 0, "text of m"), ("c1",)),
        (PartRef(2, 1), 1, ChangedPart("call", "c1", 1, CLEARED), ()),
    ],
)
async def test_a_marker_stands_for_its_part_alone(
    ref: PartRef, at: int, part: ChangedPart, answers: tuple[str, ...]
) -> None:
    talk = worked()
    marker(talk, ref)
    expected: list[Entry] = [UnchangedMessage(each) for each in range(5)]
    expected[at] = ChangedMessage(at, (part,), answers)
    assert await entries(talk, (1, 2, 3, 4, 5)) == expected


async def test_an_attachment_of_the_user_is_shown_as_its_marker() -> None:
    talk = Talk()
    talk.add(UserSaid((Text("see", 3), Text("  "), Attachment("a.txt", stored("long"), 90))))
    marker(talk, PartRef(1, 2))
    assert await entries(talk, (1,)) == [
        ChangedMessage(0, (ChangedPart("said", "", 2, "text of m"),))
    ]


async def test_several_facts_of_one_message_are_changed_together() -> None:
    talk = Talk()
    talk.user("look twice")
    talk.reply("", "c1", "c2")
    talk.output("c1")
    talk.output("c2")
    talk.user("and now this")
    marker(talk, PartRef(4))
    assert await entries(talk, (1, 2, 5)) == [
        UnchangedMessage(0),
        UnchangedMessage(1),
        ChangedMessage(2, (ChangedPart("result", "c2", 0, "text of m"),), ("c1", "c2")),
    ]


async def test_what_the_user_took_out_is_left_out_or_noted() -> None:
    talk = Talk()
    talk.add(
        UserSaid(
            (Text("stays", 3), Text(" "), Text("goes", 3), Attachment("a.txt", stored("long"), 90))
        )
    )
    talk.reply("I look", "c1")
    talk.output("c1")
    for ref in (PartRef(1, 2), PartRef(1, 3), PartRef(2, 1), PartRef(3)):
        talk.add(Excluded(ref))
    assert await entries(talk, (1, 2, 3)) == [
        ChangedMessage(0, (ChangedPart("said", "", 2, None), ChangedPart("said", "", 3, None))),
        ChangedMessage(1, (ChangedPart("call", "c1", 1, NOTE),)),
        ChangedMessage(2, (ChangedPart("result", "c1", 0, EXCLUDED),), ("c1",)),
    ]


@pytest.mark.parametrize("tokens", [NOTE_TOKENS - 1, NOTE_TOKENS, NOTE_TOKENS + 1])
async def test_a_call_the_user_took_out_is_left_out_however_long_it_was(tokens: int) -> None:
    talk = Talk()
    talk.user("look")
    talk.add(ModelReplied((ToolCall("c1", "read", "{}", tokens),), "m", Stop.CALLS))
    talk.add(Excluded(PartRef(2)))
    assert await entries(talk, (1, 2)) == [
        UnchangedMessage(0),
        ChangedMessage(1, (ChangedPart("call", "c1", 0, NOTE),)),
    ]


async def test_a_call_that_quotes_the_note_is_none_that_was_taken_out() -> None:
    talk = Talk()
    talk.user("look")
    talk.add(
        ModelReplied(
            (ToolCall("c1", "find", NOTE, 12), ToolCall("c2", "find", "{", 12)), "m", Stop.CALLS
        )
    )
    talk.add(ToolReturned("c1", OUTPUT, 40, images=(PICTURE,)))
    talk.add(ModelReplied((ToolCall("c3", "find", f"{EXCLUDED}{{", 12),), "m", Stop.CALLS))
    talk.add(Excluded(PartRef(3, 1)))
    assert await entries(talk, (1, 2, 3, 4)) == [
        UnchangedMessage(0),
        UnchangedMessage(1),
        UnchangedMessage(2),
        UnchangedMessage(3),
    ]


async def test_text_and_reasoning_of_a_reply_are_left_out_by_what_they_said() -> None:
    talk = Talk()
    talk.user("look")
    talk.add(
        ModelReplied(
            (Reasoning("hm", 4), Text("goes", 4), Text(" "), Text("stays", 4)), "m", Stop.END
        )
    )
    talk.user("on")
    for place in (0, 1):
        talk.add(Excluded(PartRef(2, place)))
    gone = (ChangedPart("reasoning", "hm", 0, None), ChangedPart("text", "goes", 1, None))
    assert await entries(talk, (1, 2, 3)) == [
        UnchangedMessage(0),
        ChangedMessage(1, gone),
        UnchangedMessage(2),
    ]


async def test_a_call_without_a_block_has_no_arguments() -> None:
    talk = Talk()
    talk.user("look")
    talk.add(
        ModelReplied(
            (Text("I look", 4), ToolCall("c1", "read", "{}", 4), Text("now", 4)), "m", Stop.CALLS
        )
    )
    talk.add(Excluded(PartRef(2, 0)))
    view = talk.view()
    _, shown = await build(
        talk, (1, 2), view=replace(view, blocks=(view.blocks[0], view.blocks[2]))
    )
    assert shown.entries == (
        UnchangedMessage(0),
        ChangedMessage(
            1, (ChangedPart("text", "I look", 0, None), ChangedPart("call", "c1", 1, "{}"))
        ),
    )


async def test_a_picture_whose_output_is_not_shown_leaves_an_empty_result() -> None:
    talk = Talk()
    talk.user("look")
    talk.reply("I look", "c1")
    talk.add(ToolReturned("c1", OUTPUT, 40, images=(PICTURE,)))
    marker(talk, PartRef(3, 1))
    view = talk.view()
    assert await entries(talk, (1, 2, 3)) == [
        UnchangedMessage(0),
        UnchangedMessage(1),
        UnchangedMessage(2),
    ]
    without_fourth = view.blocks[:3] + view.blocks[4:5]
    _, shown = await build(talk, (1, 2, 3), view=replace(view, blocks=without_fourth))
    assert shown.entries == (
        UnchangedMessage(0),
        UnchangedMessage(1),
        ChangedMessage(2, (ChangedPart("result", "c1", 0, ""),), ("c1",)),
    )


async def test_parts_missing_from_a_view_without_folds_change_nothing() -> None:
    talk = worked()
    view = talk.view()
    without_third = replace(view, blocks=view.blocks[:2] + view.blocks[3:])
    _, shown = await build(talk, (1, 2, 3, 4, 5), view=without_third)
    assert shown.entries == (
        UnchangedMessage(0),
        UnchangedMessage(1),
        UnchangedMessage(2),
        UnchangedMessage(3),
        UnchangedMessage(4),
    )


# --- folds of many messages


async def test_a_fold_stands_for_what_it_covers_and_instructions_for_nothing() -> None:
    talk = Talk()
    talk.add(SystemSet("You are an agent.", 5))
    talk.user("look around")
    talk.reply("I look", "c1")
    talk.output("c1")
    talk.reply("fine", "c2")
    talk.output("c2")
    talk.fold("h", Span(3, 4))
    _, shown = await build(talk, (2, 3, 4, 5, 6))
    assert shown.entries == (
        UnchangedMessage(0),
        InsertedText("text of h", ((1, 3),)),
        UnchangedMessage(3),
        UnchangedMessage(4),
    )
    assert shown.spans == (Span(3, 4),)


@pytest.mark.parametrize(
    ("ref", "kept"),
    [
        (PartRef(1), "look around"),
        (PartRef(2, 1), '[Kept word for word: call of read]\n{"path": "a.py"}'),
        (PartRef(3), "[Kept word for word: output of call c1]\nmany lines"),
        (PartRef(4), "fine"),
    ],
)
async def test_what_is_pinned_inside_a_fold_is_said_word_for_word(ref: PartRef, kept: str) -> None:
    talk = worked()
    talk.add(Pinned(ref))
    talk.fold("h", Span(1, 4))
    assert await entries(talk, (1, 2, 3, 4, 5), {OUTPUT: "many lines"}) == [
        InsertedText("text of h", ((0, 4),)),
        InsertedText(kept),
        UnchangedMessage(4),
    ]


async def test_what_the_system_said_is_not_said_again_in_the_users_name() -> None:
    """Its message goes on behind the fold, as the system's."""
    talk = Talk()
    talk.user("look around")
    talk.reply("I look")
    talk.user(f"{SYSTEM_MESSAGE}[SYSTEM NOTIFICATION] a task ended")
    talk.reply("fine")
    talk.add(Pinned(PartRef(3)))
    talk.fold("h", Span(1, 4))
    talk.user("go on")
    assert await entries(talk, (1, 2, 3, 4, 7)) == [
        InsertedText("text of h", ((0, 4),)),
        UnchangedMessage(4),
    ]


async def test_messages_with_something_taken_out_do_not_come_back_behind_a_fold() -> None:
    talk = worked()
    talk.add(Excluded(PartRef(3)))
    talk.fold("h", Span(1, 4))
    shown = await entries(talk, (1, 2, 3, 4, 5))
    assert shown == [InsertedText("text of h", ((0, 2), (3, 4))), UnchangedMessage(4)]


async def test_only_the_last_fold_covers_what_follows_it() -> None:
    talk = worked()
    talk.fold("one", Span(1, 2))
    talk.add(Pinned(PartRef(4)))
    talk.fold("two", Span(3, 4))
    _, shown = await build(talk, (1, 2, 3, 4, 5))
    assert shown.entries == (
        InsertedText("text of one", ((0, 2),)),
        InsertedText("text of two", ((2, 4),)),
        InsertedText("fine"),
        UnchangedMessage(4),
    )
    assert shown.spans == (Span(1, 2), Span(3, 4))


@pytest.mark.parametrize("content", [OUTPUT, Attachment("a.txt", OUTPUT, 9)])
@pytest.mark.parametrize(
    ("found", "text"),
    [(None, "[image]"), (Image("image/png", b"x"), "[image]"), ("", ""), ("read", "read")],
)
async def test_contents_that_are_not_there_are_missing(
    content: Stored | Attachment, found: str | Image | None, text: str
) -> None:
    talk = worked()
    talk.add(Pinned(PartRef(1)))
    talk.fold("h", Span(1, 4))
    view = talk.view()
    pinned = replace(view.blocks[1], content=content)
    contents = {} if found is None else {OUTPUT: found}
    blocks = (view.blocks[0], pinned) + tuple(view.blocks[2:])
    builder, shown = await build(talk, (1, 2, 3, 4, 5), contents, replace(view, blocks=blocks))
    assert shown.entries == (
        InsertedText("text of h", ((0, 4),)),
        InsertedText(text),
        UnchangedMessage(4),
    )
    assert builder.missing == ({OUTPUT: pinned} if found is None else {})


async def test_blocks_behind_the_last_message_belong_to_none() -> None:
    builder, shown = await build(worked(), (1, 2, 3, 4))
    assert shown.entries == (
        UnchangedMessage(0),
        UnchangedMessage(1),
        UnchangedMessage(2),
        UnchangedMessage(3),
    )
    assert not builder.whole


# --- messages without facts


@pytest.mark.parametrize("at", range(6))
async def test_a_message_no_fact_stands_for_stays_where_it_is(at: int) -> None:
    """With a marker, so that the entries are not those of an unchanged history."""
    talk = worked()
    marker(talk, PartRef(3))
    seqs = [1, 2, 3, 4, 5]
    seqs.insert(at, at)
    shown = await entries(talk, seqs)
    assert [
        entry.at for entry in shown if isinstance(entry, UnchangedMessage | ChangedMessage)
    ] == list(range(6))
    assert [entry for entry in shown if isinstance(entry, ChangedMessage)] == [
        ChangedMessage(3 if at <= 2 else 2, (ChangedPart("result", "c1", 0, "text of m"),), ("c1",))
    ]


@pytest.mark.parametrize(
    ("seqs", "expected"),
    [
        (
            (1, 2, 2, 3, 4, 5),
            [UnchangedMessage(0), InsertedText("text of h", ((1, 5),)), UnchangedMessage(5)],
        ),
        (
            (1, 2, 3, 3, 4, 5),
            [UnchangedMessage(0), InsertedText("text of h", ((1, 5),)), UnchangedMessage(5)],
        ),
        (
            (1, 2, 3, 4, 4, 5),
            [UnchangedMessage(0), InsertedText("text of h", ((1, 5),)), UnchangedMessage(5)],
        ),
        (
            (1, 2, 3, 4, 5, 5),
            [
                UnchangedMessage(0),
                InsertedText("text of h", ((1, 4),)),
                UnchangedMessage(4),
                UnchangedMessage(5),
            ],
        ),
        (
            (1, 2, 3, 4, 5, 5, 5),
            [
                UnchangedMessage(0),
                InsertedText("text of h", ((1, 4),)),
                UnchangedMessage(4),
                UnchangedMessage(5),
                UnchangedMessage(6),
            ],
        ),
    ],
)
async def test_a_fold_covers_the_messages_without_facts_in_it(
    seqs: Sequence[int], expected: list[Entry]
) -> None:
    talk = worked()
    talk.fold("h", Span(2, 4))
    assert await entries(talk, seqs) == expected


async def test_many_messages_without_facts_are_placed_in_one_pass() -> None:
    """37,000 of them kept every other agent waiting for 29 s."""
    calls: list[int] = []
    talk = Talk()
    seqs: list[int] = []
    for _ in range(2):
        for _ in range(100):
            seqs += [talk.user("hello")] * 5
        view = talk.view()
        count = 0

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            _, shown = await build(talk, seqs, view=view)
        finally:
            sys.setprofile(None)
        assert shown.entries == tuple(map(UnchangedMessage, range(len(seqs))))
        calls.append(count)
    assert calls[1] < 2.5 * calls[0]


# --- replies the agent was not shown whole


def recalled(call: str = "c1", *, ok: bool = True, thinks: bool = False) -> Talk:
    """A question (1), a reply with a hidden call (2), what it recalled (3), and what
    the agent was shown (4).
    """
    talk = Talk()
    talk.user("look")
    parts: tuple[ReplyPart, ...] = (Reasoning("hm", 5), Text("I recall", 5)) if thinks else ()
    arguments = '{"path": "a.py"}'
    call_again = ToolCall(call, "recall", arguments, 12)
    raw = '{"it": "was"}'
    talk.add(ModelReplied(tuple(parts) + (call_again,), "m", Stop.CALLS, raw=raw))
    talk.add(ToolReturned(call, OUTPUT, 40, ok, images=(PICTURE,)))
    talk.reply("that is it")
    return talk


@pytest.mark.parametrize(("call", "name"), [("c1", "recall"), ("", "")])
@pytest.mark.parametrize("ok", [True, False])
async def test_a_hidden_call_and_its_result_go_on_with_the_reply(
    call: str, name: str, ok: bool
) -> None:
    shown = await entries(recalled(call, ok=ok), (1, 4), {OUTPUT: "what was found"})
    assert shown == [
        UnchangedMessage(0),
        HiddenReply('{"it": "was"}'),
        HiddenResult(call, name, "what was found", ok),
        UnchangedMessage(1),
    ]


async def test_a_hidden_call_is_shown_as_its_marker() -> None:
    talk = recalled(thinks=True)
    marker(talk, PartRef(2, 2))
    talk.add(Excluded(PartRef(3)))
    assert await entries(talk, (1, 4)) == [
        UnchangedMessage(0),
        HiddenReply('{"it": "was"}', (ChangedPart("call", "c1", 2, CLEARED),)),
        HiddenResult("c1", "recall", EXCLUDED),
        UnchangedMessage(1),
    ]


async def test_a_recalled_output_without_a_block_was_taken_out() -> None:
    talk = recalled()
    view = talk.view()
    kept = tuple(block for block in view.blocks if block.source != PartRef(3))
    _, shown = await build(talk, (1, 4), view=replace(view, blocks=kept))
    assert shown.entries == (
        UnchangedMessage(0),
        HiddenReply('{"it": "was"}'),
        HiddenResult("c1", "recall", EXCLUDED),
        UnchangedMessage(1),
    )


async def test_a_fold_that_covers_a_hidden_step_leaves_the_reply() -> None:
    talk = recalled()
    talk.fold("h", Span(2, 3))
    assert await entries(talk, (1, 4)) == [
        UnchangedMessage(0),
        InsertedText("text of h"),
        UnchangedMessage(1),
    ]


@pytest.mark.parametrize(
    ("raw", "messages"), [('{"a": 1}', [{"a": 1}]), ('[{"a": 1}, 2]', [{"a": 1}, 2])]
)
def test_a_hidden_reply_is_one_message_or_several(raw: str, messages: list[object]) -> None:
    assert parse_hidden_messages(raw) == messages


# --- views that go on from another

HELD = InsertedText("as it was worked out before")


async def test_a_view_that_only_adds_goes_on_from_the_last_one() -> None:
    talk = worked()
    talk.fold("h", Span(1, 4))
    _, first = await build(talk, (1, 2, 3, 4, 5))
    held = replace(first, entries=(HELD,) + tuple(first.entries[1:]))
    _, same = await build(talk, (1, 2, 3, 4, 5), before=held)
    assert same.entries == (HELD, UnchangedMessage(4))
    talk.add(Pinned(PartRef(5)))
    _, other = await build(talk, (1, 2, 3, 4, 5), before=held)
    assert other.entries == (InsertedText("text of h", ((0, 4),)), UnchangedMessage(4)), (
        "a block is another one"
    )


async def test_what_is_added_follows_the_entries_there_were() -> None:
    talk = worked()
    talk.fold("h", Span(1, 4))
    _, first = await build(talk, (1, 2, 3, 4, 5))
    number = talk.reply("I go on")
    last = talk.user("once more")
    seqs = (1, 2, 3, 4, 5, 5, number, number, last)
    held = replace(first, entries=(HELD,) + tuple(first.entries[1:]))
    _, shown = await build(talk, seqs, before=held)
    assert shown.entries == (
        HELD,
        UnchangedMessage(4),
        UnchangedMessage(5),
        UnchangedMessage(6),
        UnchangedMessage(7),
        UnchangedMessage(8),
    )
    assert (shown.spans, shown.messages, shown.seq) == ((Span(1, 4),), 9, last)
    again = (await build(talk, seqs))[1]
    assert again.entries[0] == InsertedText("text of h", ((0, 4),))
    assert again.entries[1:] == shown.entries[1:]
    assert held.entries == (HELD, UnchangedMessage(4)), "what is held stays as it is"


async def test_a_shorter_view_is_worked_out_anew() -> None:
    talk = worked()
    talk.fold("h", Span(1, 2))
    _, first = await build(talk, (1, 2, 3, 4, 5))
    view = talk.view()
    held = replace(first, entries=(HELD,) + tuple(first.entries[1:]))
    _, shown = await build(
        talk, (1, 2, 3, 4, 5), view=replace(view, blocks=view.blocks[:-1]), before=held
    )
    assert shown.entries == (
        InsertedText("text of h", ((0, 2),)),
        UnchangedMessage(2),
        UnchangedMessage(3),
    )


async def test_what_was_sent_as_it_came_is_not_looked_at_again() -> None:
    """Else each request to a history of 70,000 messages would hold up everybody for a
    tenth of a second.
    """
    calls = []
    for number in (20, 400):
        talk = Talk()
        seqs = [talk.user(f"message {each}") for each in range(number)]
        _, first = await build(talk, seqs)
        assert (first.is_plain, first.has_fold) == (True, False)
        seqs.append(talk.reply("I go on"))
        view = talk.view()
        count = 0

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event == "call"

        gc.disable()  # What a collection calls is not counted.
        sys.setprofile(note)
        try:
            _, shown = await build(talk, seqs, view=view, before=first)
        finally:
            sys.setprofile(None)
            gc.enable()
        assert shown.entries == tuple(map(UnchangedMessage, range(number + 1)))
        assert shown.is_plain
        calls.append(count)
    assert calls[0] == calls[1]


async def test_a_fold_or_a_hidden_reply_that_is_added_ends_what_was_sent_as_it_came() -> None:
    talk = worked()
    _, first = await build(talk, (1, 2, 3, 4, 5))
    hidden = talk.add(ModelReplied((Text("found", 4),), "m", Stop.END, raw='{"a": 1}'))
    _, second = await build(talk, (1, 2, 3, 4, 5, hidden), before=first)
    assert (second.entries[5], second.is_plain, second.has_fold) == (
        HiddenReply('{"a": 1}'),
        False,
        False,
    )
    last = talk.user("on")
    _, third = await build(talk, (1, 2, 3, 4, 5, hidden, last), before=second)
    assert third.entries[:-1] == second.entries
    assert (third.entries[-1], third.is_plain) == (UnchangedMessage(6), False)
    marker(talk, PartRef(3))
    _, fourth = await build(talk, (1, 2, 3, 4, 5, hidden, last), before=third)
    assert (fourth.is_plain, fourth.has_fold) == (False, True)
    assert fourth.entries[2] == ChangedMessage(
        2, (ChangedPart("result", "c1", 0, "text of m"),), ("c1",)
    )
    newest = talk.user("and on")
    _, fifth = await build(talk, (1, 2, 3, 4, 5, hidden, last, newest), before=fourth)
    assert fifth.entries[:-1] == fourth.entries
    assert fifth.entries[-1] == UnchangedMessage(7)
    assert (fifth.is_plain, fifth.has_fold) == (False, True)


@pytest.mark.parametrize(("seconds", "expected"), [(-1.0, 6), (1e9, 0)])
async def test_others_get_their_turn_after_each_slice(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: int
) -> None:
    monkeypatch.setattr(view_entries, "SLICE_SECONDS", seconds)
    talk = worked()
    turns = 0
    assert len(talk.view().blocks) == 6

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    tasks = OwnedTasks("others")
    tasks.spawn_task(count_turns(), name="count turns")
    await build(talk, (1, 2, 3, 4, 5))
    await tasks.aclose()
    assert turns == expected


async def test_a_history_of_very_many_messages_is_not_looked_at_twice_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_entries, "SLICE_SECONDS", 1e9)
    talk = Talk()
    turns = 0
    seqs = [talk.user(f"message {each}") for each in range(4_001)]

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    tasks = OwnedTasks("others")
    tasks.spawn_task(count_turns(), name="count turns")
    _, shown = await build(talk, seqs)
    await tasks.aclose()
    assert turns == 1
    assert shown.entries == tuple(map(UnchangedMessage, range(4_001)))
