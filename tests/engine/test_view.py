"""The view of conversations written down by hand: settings, folds, undo, rewind, time travel."""

from __future__ import annotations

from helix_desktop.engine import view
from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    PolicySet,
    Purpose,
    Recorded,
    Rewound,
    RulesSet,
    Span,
    Spent,
    Stored,
    SystemSet,
    Text,
    ToolsOffered,
    ToolSpec,
    Unfolded,
    Unpinned,
    Usage,
)
from helix_desktop.engine.messages import ContextKind, Role, View
from tests.engine.talk import Talk, said, stored


def texts(shown: View) -> list[str]:
    return [
        block.content.text if isinstance(block.content, Text) else str(block.content)
        for block in shown.blocks
    ]


def sources(shown: View) -> list[object]:
    return [block.source for block in shown.blocks]


# --- settings


def test_system_prompt_then_rules_word_for_word_then_messages() -> None:
    talk = Talk()
    talk.user("hello")
    talk.add(SystemSet("be good", 2))
    talk.add(RulesSet("AGENTS.md", "Use tabs.\nNever spaces.", 6))
    talk.add(RulesSet("CLAUDE.md", "Be short.", 3))
    blocks = talk.view().blocks
    assert [block.role for block in blocks] == [Role.SYSTEM, Role.SYSTEM, Role.SYSTEM, Role.USER]
    assert texts(talk.view())[0] == "be good"
    assert "Use tabs.\nNever spaces." in texts(talk.view())[1]
    assert [block.pinned for block in blocks] == [False, True, True, False]
    assert blocks[0].kind is ContextKind.SYSTEM


def test_a_changed_rules_file_keeps_its_place_and_an_empty_one_goes() -> None:
    talk = Talk()
    talk.add(RulesSet("a", "one", 1))
    talk.add(RulesSet("b", "two", 1))
    talk.add(RulesSet("a", "three", 1))
    assert ["three" in text for text in texts(talk.view())] == [True, False]
    talk.add(RulesSet("a", "", 0))
    assert len(talk.view().blocks) == 1


def test_the_last_setting_is_in_force_and_a_rewind_leaves_it() -> None:
    talk = Talk()
    talk.add(SystemSet("first", 1))
    at = talk.user("hello")
    talk.add(SystemSet("second", 1))
    talk.add(ModelSet(ModelRole.MAIN, "m", 5))
    tool = ToolSpec("read", "Reads.", "{}")
    talk.add(ToolsOffered((tool,), 9))
    talk.user("more")
    talk.add(Rewound(at))
    assert texts(talk.view()) == ["second", "hello"]
    assert talk.view().tools == (tool,)
    assert talk.view().tools_tokens == 9
    model = talk.state.settings.model_for_role(ModelRole.MAIN)
    assert model is not None
    assert model.window == 5
    assert talk.state.settings.model_for_role(ModelRole.FAST) is None


def test_holds_tells_what_need_not_be_appended() -> None:
    talk = Talk()
    facts: list[Fact] = [
        SystemSet("s", 1),
        RulesSet("a", "one", 1),
        ToolsOffered((), 0),
        PolicySet("helix"),
        ModelSet(ModelRole.MAIN, "m", 5),
    ]
    assert not talk.state.has_settings_of_fact(facts[0])
    for fact in facts:
        talk.add(fact)
    assert all(talk.state.has_settings_of_fact(fact) for fact in facts)
    assert not talk.state.has_settings_of_fact(RulesSet("a", "", 0))
    assert talk.state.has_settings_of_fact(RulesSet("other", "", 0))


# --- folds


def test_a_span_shows_as_one_document() -> None:
    talk = Talk()
    talk.user("go")
    talk.step("a")
    talk.reply("done")
    before = talk.view()
    talk.add(ConversationChanged(title="no matter"))
    talk.fold("h", Span(1, 4))
    blocks = talk.view().blocks
    assert blocks[0].fold == "h"
    assert blocks[0].role is Role.USER
    assert blocks[0].kind is ContextKind.HANDOVER
    assert blocks[0].source == Span(1, 4)
    talk.add(Unfolded("h"))
    assert talk.view() == before


def test_a_running_turn_keeps_what_it_is_about_word_for_word() -> None:
    talk = Talk()
    talk.user("an old question")
    talk.reply("an old answer")
    begin = talk.user("the task")
    talk.steps(3)
    steering = talk.user("and mind the tests", steering=True)
    talk.steps(2)
    talk.fold("h", Span(1, talk.state.branch.order[-3]))
    assert sources(talk.view())[:3] == [
        Span(1, talk.state.branch.order[-3]),
        PartRef(begin),
        PartRef(steering),
    ]
    assert texts(talk.view())[1:3] == ["the task", "and mind the tests"]


def test_the_outermost_of_nested_folds_shows_and_undo_of_an_inner_one_changes_nothing() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(6)
    talk.user("next", tokens=100)
    talk.fold("one", Span(1, 5))
    talk.fold("two", Span(1, 9))
    talk.fold("three", Span(1, 13))
    shown = talk.view()
    assert [block.fold for block in shown.blocks if block.fold] == ["three"]
    talk.add(Unfolded("one"))
    assert talk.view() == shown
    talk.add(Unfolded("three"))
    assert [block.fold for block in talk.view().blocks if block.fold] == ["two"]
    talk.add(Unfolded("two"))
    assert not [block.fold for block in talk.view().blocks if block.fold]


def test_folds_that_cross_or_cover_nothing_or_grow_are_not_taken_up() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(6)
    talk.user("next", tokens=100)
    talk.fold("h", Span(1, 7))
    shown = talk.view()
    talk.fold("crossing", Span(4, 9))
    talk.fold("future", Span(1, 99))
    talk.fold("longer", Span(8, 9), tokens=9_999)
    talk.fold("h", Span(8, 9))
    talk.fold("part of a fold", PartRef(3), kind=FoldKind.MARKER)
    talk.fold("no such part", PartRef(9, 4), kind=FoldKind.MARKER)
    talk.fold("no such message", PartRef(40), kind=FoldKind.MARKER)
    assert talk.view() == shown
    assert [fold.fold for fold in talk.state.live_folds] == ["h"]


def test_a_marker_over_an_excerpt_and_back() -> None:
    talk = Talk()
    talk.user("go")
    output = talk.step("a", tokens=5_000)
    talk.fold("e", PartRef(output), kind=FoldKind.EXCERPT, tokens=500)
    talk.fold("m", PartRef(output), kind=FoldKind.MARKER, tokens=60)
    assert talk.view().blocks[-1].fold == "m"
    assert talk.view().blocks[-1].cached == (stored("output of a"),)
    assert talk.view().blocks[-1].role is Role.TOOL
    talk.add(Unfolded("m"))
    assert talk.view().blocks[-1].fold == "e"
    talk.add(Unfolded("e"))
    assert talk.view().blocks[-1].content == stored("output of a")


def test_an_edited_document_shows_the_users_words() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(2)
    talk.user("next")
    talk.fold("h", Span(1, 5))
    talk.add(DocumentEdited("h", "my own words", 3))
    assert texts(talk.view())[0] == "my own words"
    assert talk.view().blocks[0].tokens == 3
    edited = talk.state.find_fold("h")
    assert edited is not None
    assert edited.text == "my own words"


# --- pins and exclusions


def test_a_pin_beats_a_marker_and_shows_behind_a_document() -> None:
    talk = Talk()
    talk.user("go")
    output = talk.step("a")
    talk.fold("m", PartRef(output), kind=FoldKind.MARKER)
    talk.add(Pinned(PartRef(output)))
    assert talk.view().blocks[-1].content == stored("output of a")
    assert talk.view().blocks[-1].pinned
    talk.steps(2)
    talk.user("next")
    talk.fold("h", Span(1, talk.state.branch.order[-2]))
    assert sources(talk.view())[1] == PartRef(output)
    assert "Kept word for word: output of call a" in said(talk.request())
    talk.add(Unpinned(PartRef(output)))
    assert PartRef(output) not in sources(talk.view())


def test_what_is_taken_out_is_gone_or_leaves_a_note() -> None:
    talk = Talk()
    user = talk.user("a secret")
    talk.user("go")
    reply = talk.reply("I say", "a")
    output = talk.output("a", "the output itself")
    for ref in (PartRef(user), PartRef(reply, 0), PartRef(reply, 1), PartRef(output)):
        talk.add(Excluded(ref))
    shown = said(talk.request())
    assert "a secret" not in shown
    assert "I say" not in shown
    assert "a.py" not in shown
    assert shown.count("Taken out of the context") == 2
    talk.add(Included(PartRef(user)))
    assert "a secret" in said(talk.request())


def test_a_document_over_what_is_taken_out_goes_too() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(2)
    talk.user("next")
    talk.fold("h", Span(1, 5))
    talk.add(Excluded(Span(1, 5)))
    assert texts(talk.view()) == ["next"]


# --- rewind and time travel


def test_a_rewind_restores_the_folds_of_then_and_leaves_what_came_after() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(4)
    talk.fold("one", Span(2, 5))
    then = talk.state.seq
    shown = talk.view()
    talk.add(Unfolded("one"))
    talk.fold("two", Span(1, 7))
    talk.user("later")
    talk.add(Rewound(then))
    assert talk.view() == shown
    talk.add(Rewound(then + 3))
    assert "later" in texts(talk.view())


def test_a_rewind_behind_a_rewind_follows_the_line_it_leads_to() -> None:
    talk = Talk()
    talk.user("one")
    talk.user("two")
    talk.add(Rewound(1))
    talk.user("three")
    end = talk.state.seq
    talk.add(Rewound(2))
    assert texts(talk.view()) == ["one", "two"]
    talk.add(Rewound(end))
    assert texts(talk.view()) == ["one", "three"]
    assert [recorded.seq for recorded in talk.state.facts_on_path()] == [1, 3, 4, 6]
    talk.add(Rewound(0))
    assert texts(talk.view()) == []


def test_the_view_of_then_is_the_view_there_was() -> None:
    talk = Talk()
    talk.user("go")
    views = []
    for index in range(5):
        talk.step(f"s{index}")
        views.append((talk.state.seq, talk.view()))
    talk.fold("h", Span(1, 7))
    talk.add(Rewound(3))
    for seq, shown in views:
        assert talk.state.past_moment(seq).get_view() == shown
        assert view.build_state(talk.facts[:seq]).get_view() == shown


def test_a_fork_is_the_same_view_and_goes_on_by_itself() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(3)
    talk.fold("h", Span(2, 5))
    copied = view.build_state(Recorded("fork", one.seq, one.time, one.fact) for one in talk.facts)
    copied.advance_state(
        Recorded("fork", copied.seq + 1, 0, ConversationStarted(forked_from="talk", forked_at=8))
    )
    assert copied.get_view() == talk.view()
    talk.add(Unfolded("h"))
    assert copied.get_view() != talk.view()


# --- what else a state knows


def test_title_returns_and_money() -> None:
    talk = Talk()
    talk.add(ConversationStarted(title="begun"))
    assert talk.state.title == "begun"
    talk.add(ConversationChanged(title="renamed"))
    talk.add(ConversationChanged(pinned=True))
    assert talk.state.title == "renamed"
    talk.user("go")
    seq = talk.step("a", text="same")
    assert talk.state.seq_of_last_output_with_content(stored("same").digest) == seq
    assert talk.state.seq_of_last_output_with_content(stored("other").digest) == 0
    talk.add(Spent(Purpose.HANDOVER, "m", Usage(input=5)))
    assert len(talk.state.spent) == 2
    assert talk.state.time_of_moment == talk.facts[-1].time


def test_the_highest_number_of_a_fold_is_known_on_any_line() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(2)
    talk.add(Folded("marker-7", FoldKind.MARKER, PartRef(3), "m", 5, 500, batch="marker-9"))
    talk.add(Folded("by hand", FoldKind.MARKER, PartRef(5), "m", 5, 500))
    talk.add(Rewound(2))
    assert talk.state.last_fold == 9
    assert talk.state.find_fold("marker-7") is None


def test_the_view_carries_how_the_main_model_is_asked() -> None:
    state = view.build_state(
        [
            Recorded(
                "c",
                1,
                0.0,
                ModelSet(ModelRole.MAIN, "m", 9_000, effort="high", temperature=0.5, top_p=0.9),
            )
        ]
    )
    asked = state.get_view()
    assert (asked.effort, asked.temperature, asked.top_p) == ("high", 0.5, 0.9)


def test_the_highest_number_of_a_fold_counts_with_and_without_a_batch() -> None:
    talk = Talk()
    talk.user("go")
    seq = talk.step("c")
    talk.fold("by hand", PartRef(seq), kind=FoldKind.MARKER)
    assert talk.state.last_fold == 0
    talk.fold("marker-7", PartRef(seq), kind=FoldKind.MARKER)
    assert talk.state.last_fold == 7


def test_a_document_names_the_entries_of_its_originals() -> None:
    talk = Talk()
    talk.user("go")
    talk.step("c")
    original = stored("all of it")
    talk.add(
        Folded("h", FoldKind.HANDOVER, Span(1, 3), "short", 5, 500, entries=(original.digest,))
    )
    document = talk.view().blocks[0]
    assert document.fold == "h"
    assert document.cached == (Stored(original.digest, 0),)


def test_a_change_that_names_no_model_leaves_the_conversations_own() -> None:
    talk = Talk()
    talk.add(ConversationStarted("one"))
    assert talk.state.own_model == ""
    talk.add(ConversationChanged(model="peer/other"))
    talk.add(ConversationChanged(title="two"))
    assert (talk.state.own_model, talk.state.title) == ("peer/other", "two")
    talk.add(ConversationChanged(model=""))
    assert (talk.state.own_model, talk.state.title) == ("", "two")


def test_the_system_prompt_is_a_block_of_the_fact_that_set_it() -> None:
    talk = Talk()
    talk.user("go")
    seq = talk.add(SystemSet("be brief", 10))
    assert talk.state.get_view().blocks[0].source == PartRef(seq)


def test_what_is_shown_of_the_past_was_born_at_no_step() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(2)
    assert {item.born for item in talk.state.past_moment(talk.state.seq).branch.items} == {0}


def test_a_rewind_to_what_is_not_yet_there_leaves_all_of_it() -> None:
    talk = Talk()
    talk.user("go")
    seq = talk.add(Rewound(99))
    assert talk.state.record.targets[-1] == seq - 1
    assert talk.view().blocks[0].source == PartRef(1)
