"""Folds and documents in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.facts import (
    Attachment,
    BroughtIn,
    ConversationStarted,
    Fact,
    FileChanged,
    FilesChanged,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Recorded,
    Refolded,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.message_cost_forecast import ContextAfterUndo
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui import translation as spoken
from helix_desktop.gui.common.fold_descriptions import count_covered_messages
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    _merge_two_events,
)
from tests.gui import story as told
from tests.gui.timeline.conftest import HASH, Written

SUM = "What was saved is the sum over these requests, as the model counts, compared with sending everything as long as it fits."


def story_of(written: Written) -> ConversationTimeline:
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    return story


def test_titles_and_lines(written: Written) -> None:
    story = story_of(written)
    assert [fold_sentences.describe_event_title(event) for event in story.events] == [
        "Conversation started",
        "Reduced 3 tool outputs to one line each",
        "Summary 1",
        "Summary 2",
    ]
    assert (
        fold_sentences.describe_event_briefly(story.events[0])
        == "Setting for long conversations: Cheapest"
    )
    spoken.set_translations(
        json.loads(spoken.translation_catalogue_path("zh_CN").read_text("utf-8"))
    )
    try:
        assert fold_sentences.describe_event_briefly(story.events[0]) == "长对话设置：最省钱"
    finally:
        spoken.set_translations({})
    assert (
        fold_sentences.describe_event_briefly(story.events[1]) == "saved about $0.047 in 3 requests"
    )
    assert fold_sentences.describe_fold_figures(story.events[1]) == "15K → 90 tokens"
    assert (
        fold_sentences.describe_fold_details(story.events[1])
        == f"3 requests had the shorter text. {SUM}"
    )
    assert fold_sentences.describe_fold_figures(story.events[3]).endswith(" · written by fast")
    assert fold_sentences.describe_fold_details(story.events[3]) == (
        f"1 request had the shorter text. {SUM} Important details found: 42. The model kept 38 of them. Helix Desktop added 3 to the summary and 1 to a stored text beside it."
    )


def test_a_hash_is_shown_by_its_ends_and_a_line_without_a_model_names_no_model(
    written: Written,
) -> None:
    """The panel began "no model · in the background" and with 64 digits."""
    shortened = fold_sentences.shorten_hashes(f"[{HASH}: 6,000 lines]")
    assert shortened == f"[{HASH[:4]}…{HASH[-4:]}: 6,000 lines]"
    lines_of_outputs = fold_sentences.describe_fold_figures(story_of(written).events[1])
    assert "model" not in lines_of_outputs
    assert "written" not in lines_of_outputs


def test_a_fold_covers_as_many_messages_as_the_chat_shows() -> None:
    """The defect: tool outputs, permissions and ends of turns were counted as messages,
    so that 17 were 32.
    """
    usual: list[Fact] = [
        UserSaid((Text("do it"),)),
        ModelReplied((Text("done"),), "m", Stop.END),
        TurnEnded(TurnEnd.DONE),
    ]
    fold = Folded("f", FoldKind.HANDOVER, Span(1, 6), "text", 10, 90)
    recorded = [
        Recorded("c", seq, float(seq), fact) for seq, fact in enumerate((*usual, *usual, fold), 1)
    ]
    story = ConversationTimeline()
    story.read_all_facts(recorded)
    assert count_covered_messages(fold, story.history.facts) == 4


@pytest.mark.parametrize(
    ("why", "agent", "known"),
    [
        (
            "Claude Code compacted the conversation here (manual)",
            "Claude Code",
            " · requested by the user",
        ),
        ("Claude Code compacted the conversation here (auto)", "Claude Code", " · automatic"),
        ("Codex compacted the conversation here", "Codex", ""),
    ],
)
def test_a_compaction_by_an_agent_is_called_that(why: str, agent: str, known: str) -> None:
    """The timeline called it “Handover 1”, as if this program had made it."""
    fold = Folded("f", FoldKind.HANDOVER, Span(1, 3), "summary", 10, 90, number=1, why=why)
    usual: list[Fact] = [UserSaid((Text("do it"),)), ModelReplied((Text("done"),), "m", Stop.END)]
    recorded = [
        Recorded("c", seq, float(seq), fact)
        for seq, fact in enumerate((*usual, TurnEnded(TurnEnd.DONE), fold), 1)
    ]
    story = ConversationTimeline()
    story.read_all_facts(recorded)
    assert fold_sentences.describe_event_title(story.events[-1]) == f"Compaction by {agent}"
    assert fold_sentences.describe_fold_figures(story.events[-1]) == f"≈ 90 → ≈ 10 tokens{known}"


def test_undoing_the_compaction_of_an_agent_says_how_the_agent_gets_its_messages() -> None:
    """Its own session stays compacted, and nothing said so."""
    fold = Folded(
        "f",
        FoldKind.HANDOVER,
        Span(1, 3),
        "summary",
        10,
        90,
        why="Codex compacted the conversation here",
    )
    said: list[Fact] = [
        UserSaid((Text("do it", 40),)),
        ModelReplied((Text("done", 50),), "m", Stop.END),
    ]
    begun: list[Fact] = [
        *said,
        UserSaid((Text("more", 40),)),
        fold,
        *said,
        Unfolded("f"),
        Refolded("f"),
    ]
    story = ConversationTimeline()
    hints = []
    for seq, fact in enumerate(begun, 1):
        story.read_next_fact(Recorded("c", seq, float(seq), fact))
        if seq >= 6:
            hints.append(
                fold_sentences.describe_fold_figures(story.events[-1]).partition(" tokens")[2]
            )
    words = " · undone only here; choose “Continue in Codex…” to go on with all messages in it"
    assert hints == ["", words, ""]


def test_an_excerpt_that_the_agent_showed_its_model_is_not_called_ours() -> None:
    """The defect: "Excerpt: exec_command" for an output that Codex had cut."""
    call = ToolCall("a", "exec_command", "seq 1 400", 10)
    why = "the other program showed this instead"
    begun: list[Fact] = [
        ConversationStarted(origin=Origin("codex", "s")),
        ModelReplied((call,), "m", Stop.CALLS, Usage(input=9_908)),
        ToolReturned("a", Stored(Digest.of_content(b"out"), 3, 1), 3_600, head="out"),
        Folded("e", FoldKind.EXCERPT, PartRef(3), "begins", 3_244, 3_600, why=why),
    ]
    story = ConversationTimeline()
    story.read_all_facts(
        [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(begun, 1)]
    )
    assert fold_sentences.describe_event_title(story.events[1]).startswith("Excerpt by Codex: ")
    assert fold_sentences.describe_fold_figures(story.events[1]) == "3.6K → 3.2K tokens"


def test_the_beginning_of_a_fork_is_called_a_fork() -> None:
    """Two rows of its timeline had the same title."""
    begun: list[Fact] = [
        ConversationStarted(),
        UserSaid((Text("go"),)),
        ConversationStarted(forked_from="a", forked_at=2),
    ]
    story = ConversationTimeline()
    story.read_all_facts(
        [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(begun, 1)]
    )
    titles = [fold_sentences.describe_event_title(event) for event in story.events]
    assert titles == ["Conversation started", "Duplicate created"]


def test_sections_of_a_document() -> None:
    found = fold_sentences.split_document_sections(told.DOCUMENT)
    assert [name for name, _ in found] == [
        "",
        "Project Background",
        "Technical Details",
        "Completed Work",
        "Current Issues",
        "TODO Items",
        "User Preferences",
    ]


def test_sources_become_links() -> None:
    text = fold_sentences.link_hashes_and_messages(f"see [14] and [a](http://b) and {HASH}")
    assert text == f"see [message 14](helix-seq:14) and [a](http://b) and `{HASH[:4]}…{HASH[-4:]}`"
    assert fold_sentences.find_entries_named_in_document(f"{HASH} {HASH} deadbeef") == [
        Digest.from_hex(HASH)
    ]


def test_only_the_changed_sentence_differs(written: Written) -> None:
    story = story_of(written)
    old, new = (
        fold_sentences.split_document_sections(event.current_folds[0].text)
        for event in story.events[2:4]
    )
    a, b = fold_sentences.align_document_sections(old, new)
    changed = [
        line for line in format_unified_diff(a, b, "handover").split("\n") if line[:1] in "-+"
    ]
    assert any("12 call sites" in line for line in changed)
    assert not any("Rust storage engine" in line for line in changed)


def test_an_excerpt_names_the_call_or_the_attachment_it_is_of() -> None:
    written = Written()
    attached = Attachment("build.log", Stored(Digest.of_content(b"log"), 80_000, 900), 20_000)
    said = written.add(UserSaid((Text("look", 1), attached)))
    written.add(Folded("e0", FoldKind.EXCERPT, PartRef(said, 1), "…", 400, 20_000))
    out = written.output(7)
    written.add(Folded("e1", FoldKind.EXCERPT, PartRef(out), "…", 400, 5_000))
    titles = [
        fold_sentences.describe_event_title(event)
        for event in story_of(written).events
        if event.current_folds
    ]
    assert titles == ["Excerpt: build.log", "Excerpt: Read src/7.rs"]


@pytest.mark.parametrize(("before", "is_said"), [(0.0004, False), (0.0006, True), (0.0, False)])
def test_what_is_less_than_a_tenth_of_a_cent_is_not_said_of_the_time_before(
    written: Written, monkeypatch: pytest.MonkeyPatch, before: float, *, is_said: bool
) -> None:
    story = story_of(written)
    monkeypatch.setattr(story, "costs_at_point", lambda _point: (1.0, before))
    said = fold_sentences.describe_costs_at_point(story, 0)
    assert said.startswith("$1.00 so far")
    assert ("before import or fork" in said) is is_said


@pytest.mark.parametrize(
    ("paid_before", "paid_here", "cost"),
    [
        (0.0004, 0.0, "$0.020"),
        (0.01, 0.0004, "$0.030 before import or fork"),
        (0.01, 0.01, "$0.030, $0.010 before import or fork"),
    ],
)
def test_what_rounds_to_nothing_does_not_decide_where_sub_agents_were_paid(
    paid_before: float, paid_here: float, cost: str
) -> None:
    before = BroughtIn(Origin("codex", "s"), "run", 2, 10, 1, cost=paid_before)
    begun: list[Fact] = [
        ConversationStarted(origin=Origin("codex", "s")),
        ModelReplied((Text("done"),), "m", Stop.END, Usage(input=100)),
        before,
        ModelReplied((Text("more"),), "m", Stop.END, Usage(input=100, cost=paid_here)),
    ]
    story = ConversationTimeline()
    story.read_all_facts(
        [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(begun, 1)]
    )
    assert fold_sentences.describe_timeline(story, 0.02).endswith(f", 2 steps, {cost}")


def test_a_row_says_whether_a_request_was_sent_with_it() -> None:
    """The gateway shortens when the provider's cache has expired: the agent may be silent for hours."""
    asked = UserSaid((Text("Read a.py.", 5),))
    while_answering = event_of(CALL, OUTPUT, excerpt(), asked)
    assert fold_sentences.describe_effect(while_answering) == "5K → 400 tokens"
    event = event_of(CALL, OUTPUT, excerpt(), asked, TurnEnded(TurnEnd.DONE))
    words = "5K → 400 tokens from the next request on"
    assert fold_sentences.describe_effect(event) == words
    sent = event_of(CALL, OUTPUT, excerpt(), ANSWER)
    assert fold_sentences.describe_effect(sent) == "saved about 4.6K tokens in 1 request"
    undone = event_of(CALL, OUTPUT, excerpt(), Unfolded(excerpt().fold))
    assert fold_sentences.describe_effect(undone) == "5K → 400 tokens"


def test_what_was_put_back_is_counted_in_no_title_and_no_size(written: Written) -> None:
    """After one of nine outputs was put back, the heading and the chat went on saying nine."""
    written.add(Unfolded("m1"))
    event = story_of(written).events[1]
    assert fold_sentences.describe_event_title(event) == "Reduced 2 tool outputs to one line each"
    assert fold_sentences.describe_effect(event).startswith("saved ")
    assert fold_sentences.describe_fold_figures(event) == "10K → 60 tokens"
    for fold in ("m0", "m2"):
        written.add(Unfolded(fold))
    event = story_of(written).events[1]
    assert fold_sentences.describe_event_title(event) == "Reduced 3 tool outputs to one line each"
    assert fold_sentences.describe_fold_figures(event) == "15K → 90 tokens"


# --- Words for each kind of event


def event_of(*told_facts: Fact) -> TimelineEvent:
    """The newest event of a conversation with these facts."""
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(told_facts, 1)]
    story = ConversationTimeline()
    story.read_all_facts(recorded)
    return story.events[-1]


OUTPUT = ToolReturned("a", Stored(Digest.of_content(b"out"), 3, 1), 5_000, head="out")
CALL = ModelReplied((ToolCall("a", "read_file", '{"path": "a.py"}', 10),), "m", Stop.CALLS)


ANSWER = ModelReplied((Text("So.", 2),), "m", Stop.END)


def excerpt(asked: str = "", output: int = 2) -> Folded:
    return Folded("e", FoldKind.EXCERPT, PartRef(output), "…", 400, 5_000, asked=asked)


def test_an_excerpt_says_what_was_asked_to_be_kept() -> None:
    plain = fold_sentences.describe_event_briefly(event_of(CALL, OUTPUT, excerpt()))
    assert plain == "5K → 400 tokens", "the title says that it is one"
    asked = fold_sentences.describe_event_briefly(event_of(CALL, OUTPUT, excerpt("x" * 80)))
    assert asked.endswith(f" · kept: “{'x' * 60}”")


@pytest.mark.parametrize("kind", [FoldKind.OBSERVATIONS, FoldKind.REFLECTION])
def test_notes_are_counted_and_so_are_those_of_high_priority(kind: FoldKind) -> None:
    text = "Notes\n- one !!!\n- two !\n- three !!!"
    notes = Folded("n", kind, Span(1, 2), text, 30, 5_000)
    figures = fold_sentences.describe_fold_figures(event_of(CALL, OUTPUT, notes))
    assert figures.endswith(" · 3 notes, 2 high priority")


def test_a_preset_that_this_version_does_not_know_is_named_as_it_is() -> None:
    start = event_of(ConversationStarted())
    start.words = "of tomorrow"
    words = fold_sentences.describe_event_briefly(start)
    assert words == "Setting for long conversations: of tomorrow preset"
    start.words = ""
    assert fold_sentences.describe_event_briefly(start) == ""


def test_more_outputs_than_fit_into_a_title_are_counted() -> None:
    written = Written()
    outputs = [written.output(number) for number in range(4)]
    for number, seq in enumerate(outputs):
        fold = Folded(f"e{number}", FoldKind.EXCERPT, PartRef(seq), "…", 400, 5_000, "batch")
        written.add(fold)
    title = fold_sentences.describe_event_title(story_of(written).events[-1])
    assert title == "Excerpt: Read src/0.rs, Read src/1.rs and 2 more"


def test_what_a_fold_covers_is_named_by_its_call_its_file_or_as_the_users_message() -> None:
    attached = Attachment("build.log", Stored(Digest.of_content(b"log"), 8, 1), 2)
    said = UserSaid((Text("look", 1), attached))
    event = event_of(said, CALL, OUTPUT, Folded("m", FoldKind.MARKER, PartRef(3), "x", 3, 50))
    name = fold_sentences.name_covered_part
    assert name(event, PartRef(1, 0)) == "your message"
    assert name(event, PartRef(1, 1)) == "build.log"
    assert name(event, PartRef(1, 2)) == "your message"
    assert name(event, PartRef(3)) == "Read a.py"
    assert name(event, PartRef(2)) == ""
    assert name(event, PartRef(0)) == ""
    assert name(event, PartRef(5)) == ""


@pytest.mark.parametrize(
    ("writing", "words", "detail"),
    [
        (Usage(input=900, cost=0.25), "writing it took 900 tokens", "Writing it took $0.250."),
        (Usage(input=900), "writing it took 900 tokens", "Writing it took 900 tokens."),
        (Usage(), "5K → 400 tokens", ""),
    ],
)
def test_a_row_says_what_writing_took_in_the_unit_of_the_head(
    writing: Usage, words: str, detail: str
) -> None:
    event = event_of(CALL, OUTPUT, excerpt(), UserSaid((Text("Go on.", 2),)))
    event.writing = writing
    assert fold_sentences.describe_effect(event) == words
    assert fold_sentences.describe_fold_details(event) == detail


def test_a_row_of_several_events_says_what_all_of_them_saved() -> None:
    second_call = ModelReplied((ToolCall("2", "read_file", "{}", 2),), "m", Stop.CALLS)
    second = replace(excerpt(), fold="f2", cover=PartRef(5))
    output = replace(OUTPUT, call="2")
    story = ConversationTimeline()
    happened: list[Fact] = [CALL, OUTPUT, excerpt(), second_call, output, second, ANSWER]
    for seq, fact in enumerate(happened, 1):
        story.read_next_fact(Recorded("c", seq, float(seq), fact))
    merged = _merge_two_events(*story.folded_events)
    assert fold_sentences.describe_effect(merged) == "saved about 13.8K tokens in 2 requests"
    assert merged.saved.tokens == sum(event.saved.tokens for event in story.folded_events)


def test_a_row_says_in_which_requests_its_full_text_would_not_have_fit() -> None:
    """Rows said "9K → 174 in 24 requests" in a window of 8.2K, and nobody could add them up."""
    window = ModelSet(ModelRole.MAIN, "m", 4_000, 500)
    small: list[Fact] = [window, CALL, OUTPUT, excerpt(output=3), *[ANSWER] * 3]
    assert fold_sentences.describe_effect(event_of(*small)) == (
        "5K → 400 tokens · the full text would not have fit"
    )
    larger = replace(window, window=7_000)
    longer_answer = replace(ANSWER, parts=(Text("So.", 700),))
    medium: list[Fact] = [larger, CALL, OUTPUT, excerpt(output=3), *[longer_answer] * 3]
    assert fold_sentences.describe_fold_details(event_of(*medium)) == (
        f"3 requests had the shorter text. In 1 of them, the full text would not have fit. {SUM}"
    )


def words_at(*told_facts: Fact) -> str:
    """The tooltip of the mark at the last of these facts."""
    story = ConversationTimeline()
    for seq, fact in enumerate(told_facts, 1):
        story.read_next_fact(Recorded("c", seq, float(seq), fact))
    return fold_sentences.describe_marked_fact(story.history, len(told_facts))


def test_a_mark_is_known_by_the_users_words_and_files() -> None:
    attached = Attachment("build.log", Stored(Digest.of_content(b"log"), 8, 1), 2)
    assert words_at(UserSaid((Text("Run it.", 1), attached))) == "Run it. build.log"
    assert words_at(UserSaid((attached,))) == "build.log"


def test_a_mark_is_known_by_the_files_that_changed_and_how_many_more() -> None:
    before = Digest.of_content(b"before")
    stored = Stored(before, 3, 1)
    two = FilesChanged(stored, before, before, names=("a.py", "b.py"), files=2)
    assert words_at(two) == "a.py, b.py"
    assert words_at(replace(two, files=5)) == "a.py, b.py and 3 more"
    changes = (FileChanged("src/a.py", None, None), FileChanged("b.py", None, None))
    assert words_at(CALL, replace(OUTPUT, changes=changes)) == "src/a.py, b.py"


def test_a_mark_of_a_failure_is_known_by_its_call_and_what_it_put_out() -> None:
    failed = replace(OUTPUT, ok=False, head="no such file\nmore\nand more")
    assert words_at(CALL, failed) == "Read a.py\nno such file\nmore"
    assert words_at(TurnEnded(TurnEnd.FAILED, "The model did not answer.")) == (
        "The model did not answer."
    )
    assert words_at(ConversationStarted()) == ""


def test_a_mark_has_a_few_short_lines() -> None:
    assert words_at(UserSaid((Text("x" * 200, 1),))) == "x" * 90
    assert words_at(UserSaid((Text("1\n2\n3\n4", 1),))) == "1\n2\n3"


@pytest.mark.parametrize(
    ("seconds", "length"), [(60, "1 min 00 s"), (1.4 * 86_400, None), (1.5 * 86_400, "2 days")]
)
def test_a_conversation_lasts_days_from_a_day_and_a_half_on(
    seconds: float, length: str | None
) -> None:
    words = fold_sentences._describe_length(seconds)
    if length is None:
        assert "day" not in words
    else:
        assert words == length


def test_a_conversation_without_a_step_has_no_heading() -> None:
    assert fold_sentences.describe_timeline(ConversationTimeline()) == ""


def test_a_summary_says_who_wrote_it_and_that_there_was_no_room() -> None:
    summary = Folded("s", FoldKind.HANDOVER, Span(1, 2), "text", 30, 5_000, model="fast")
    figures = fold_sentences.describe_fold_figures
    assert figures(event_of(CALL, OUTPUT, summary)).endswith(" · written by fast")
    in_panic = replace(summary, model="", panic=True)
    assert figures(event_of(CALL, OUTPUT, in_panic)).endswith(
        " · because the request would not fit"
    )
    alone = replace(summary, model="")
    assert figures(event_of(CALL, OUTPUT, alone)) == "5K → 30 tokens"


def after_undo(used: int) -> ContextAfterUndo:
    return ContextAfterUndo(
        used=used,
        window=8_192,
        reserve=1_228,
        dollars=0.0,
        is_shortened_again=False,
    )


def test_an_undo_says_how_full_the_context_is_then() -> None:
    """Seven figures were told of one Undo, in two counts."""
    assert fold_sentences.describe_context_after_undo(after_undo(6_249)) == (
        "After Undo, the context would be about 76% full."
    )


def test_an_undo_that_adds_nothing_says_why() -> None:
    """After a summary, the same text was 0 more."""
    behind = replace(after_undo(2_000), folds=1, behind_summary=1)
    assert fold_sentences.describe_context_after_undo(behind) == (
        "Undo adds nothing to the context now, because a summary stands in place of this text."
    )
    two_of_three = replace(after_undo(2_600), folds=3, behind_summary=2)
    assert fold_sentences.describe_context_after_undo(two_of_three) == (
        "After Undo, the context would be about 32% full."
        " Some of these texts add nothing, because a summary stands in their place."
    )


def test_an_undo_for_which_there_is_no_room_names_no_figure_that_another_contradicts() -> None:
    """It said that at most 7.0K fit, where 7.2K had just been sent."""
    after = after_undo(7_210)
    assert not after.fits
    assert fold_sentences.describe_context_after_undo(after) == (
        "Undo would leave no room for the reply and a summary, so this cannot be undone now."
    )
    assert after_undo(8_192 - 1_228).fits
