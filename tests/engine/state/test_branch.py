"""The line: turns, steps, calls, and the sums that strategies are decided by."""

from __future__ import annotations

from helix_desktop.engine.facts import (
    Excluded,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Reasoning,
    Refolded,
    Span,
    Stop,
    Text,
    TodoSet,
    ToolCall,
    TurnEnd,
    TurnEnded,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.state.view_items import MARKER_TOKENS
from tests.engine.talk import Talk


def test_a_turn_begins_with_a_message_and_is_steered_by_others() -> None:
    talk = Talk()
    first = talk.user("go")
    talk.step("a")
    more = talk.user("mind this", steering=True)
    assert talk.state.branch.turn.words == [first, more]
    assert talk.state.branch.turn.running
    talk.add(TurnEnded(TurnEnd.DONE))
    assert not talk.state.branch.turn.running
    late = talk.user("steering too late is a message", steering=True)
    assert talk.state.branch.turn.first_seq == late


def test_running_calls_are_those_without_a_result() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a", "b")
    assert [call.id for call in talk.state.branch.running_calls] == ["a", "b"]
    talk.output("b")
    assert [call.id for call in talk.state.branch.running_calls] == ["a"]
    talk.reply("never mind")
    assert talk.state.branch.running_calls == []


def test_what_was_carried_is_tokens_times_steps_without_documents_and_tail() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(5, tokens=990)
    branch = talk.state.branch
    order = branch.order
    each = 100 * 5 + sum((10 + 990) * (5 - step) for step in range(1, 4)) + 10 * 0
    assert branch.carried_token_steps(branch.steps[3]) == each
    talk.fold("h", Span(order[0], order[4]))
    assert branch.carried_token_steps(branch.steps[3]) == 1_000 * 2
    talk.add(Unfolded("h"))
    assert branch.carried_token_steps(branch.steps[3]) == each


def test_a_cleared_part_counts_as_the_marker_it_is() -> None:
    talk = Talk()
    talk.user("go", tokens=0)
    outputs = talk.steps(3, tokens=1_000)
    before = talk.state.branch.carried_token_steps(talk.state.branch.steps[2])
    talk.fold("m", PartRef(outputs[0]), kind=FoldKind.MARKER, tokens=60)
    assert talk.state.branch.carried_token_steps(talk.state.branch.steps[2]) == before - 2 * 940


def test_what_a_step_adds_that_can_be_cleared() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(2, tokens=1_000)
    talk.step("short", tokens=50)
    assert talk.state.branch.clearable == [1_000 - MARKER_TOKENS] * 2 + [0]


def test_messages_worth_a_marker_are_known() -> None:
    talk = Talk()
    talk.user("go")
    one = talk.step("a", tokens=300)
    talk.step("b", tokens=20)
    three = talk.step("c", tokens=300)
    assert talk.state.branch.plain_outputs == [one, three]
    talk.fold("m", PartRef(one), kind=FoldKind.MARKER, tokens=60)
    assert talk.state.branch.plain_outputs == [three]
    talk.add(Unfolded("m"))
    assert talk.state.branch.plain_outputs == [one, three]


def test_handovers_are_counted_with_the_time_of_the_last() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(3)
    talk.user("next")
    talk.fold("h", Span(1, 3))
    assert talk.state.branch.handovers == 1
    assert talk.state.branch.last_handover > 0


def test_reasoning_of_an_open_loop_cannot_be_taken_out_and_goes_whole_later() -> None:
    talk = Talk()
    talk.user("go")
    said = (
        Reasoning("one", 5, "s"),
        Reasoning("two", 5, "s"),
        Text("so", 1),
        ToolCall("a", "read", "{}", 5),
    )
    reply = talk.add(ModelReplied(said, "m", Stop.CALLS))
    talk.output("a")
    before = talk.view()
    talk.add(Excluded(PartRef(reply, 0)))
    assert talk.view() == before
    talk.reply("done")
    talk.add(TurnEnded(TurnEnd.DONE))
    talk.add(Excluded(PartRef(reply, 1)))
    assert not [block for block in talk.view().blocks if isinstance(block.content, Reasoning)]


def test_redo_of_what_a_later_fold_crosses_changes_nothing() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(6)
    talk.user("next", tokens=100)
    talk.fold("one", Span(1, 7))
    talk.add(Unfolded("one"))
    talk.fold("two", Span(4, 9))
    shown = talk.view()
    talk.add(Refolded("one"))
    assert talk.view() == shown
    assert not talk.state.branch.would_fold_nest(Span(1, 7))
    assert talk.state.branch.would_fold_nest(Span(1, 9))


def test_undone_covers_are_barred_until_redone() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(3)
    talk.user("next")
    talk.fold("h", Span(1, 5))
    talk.add(Unfolded("h"))
    assert talk.state.branch.barred == {Span(1, 5): "h"}
    talk.add(Refolded("h"))
    assert talk.state.branch.barred == {}


def test_the_plan_is_the_last_list() -> None:
    talk = Talk()
    talk.add(TodoSet((("one", "open"),)))
    talk.add(TodoSet((("one", "done"), ("two", "doing"))))
    assert talk.state.branch.todo == (("one", "done"), ("two", "doing"))


def test_two_outputs_of_one_step_are_both_what_it_adds() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a", "b")
    talk.output("a", tokens=500)
    talk.output("b", tokens=300)
    assert talk.state.branch.clearable == [800 - 2 * MARKER_TOKENS]


def test_undoing_the_fold_of_a_part_counts_as_the_part() -> None:
    talk = Talk()
    talk.user("go")
    seq = talk.step("c", tokens=500)
    whole = talk.state.branch.total_tokens
    talk.fold("m", PartRef(seq), kind=FoldKind.MARKER, tokens=40)
    assert talk.state.branch.total_tokens == whole - 460
    assert talk.state.branch.view_tokens_without_fold("m") == whole


def test_a_fold_as_long_as_its_part_has_an_effect() -> None:
    talk = Talk()
    talk.user("go")
    seq = talk.step("c", tokens=500)
    talk.fold("m", PartRef(seq), kind=FoldKind.MARKER, tokens=500)
    assert "m" in talk.state.branch.live


def test_the_turn_knows_where_the_one_before_it_began() -> None:
    talk = Talk()
    first = talk.user("go")
    talk.reply("done")
    talk.user("more")
    assert talk.state.branch.turn.before == first
    assert talk.state.branch.turn.running


def test_what_an_undo_brought_back_stays_word_for_word_in_a_longer_fold_but_in_panic() -> None:
    talk = Talk()
    talk.user("go")
    first, second, third = talk.steps(3)
    talk.fold("m", PartRef(first), kind=FoldKind.MARKER)
    talk.add(Unfolded("m"))
    branch = talk.state.branch
    talk.add(TurnEnded(TurnEnd.DONE))
    assert list(branch.parts_kept_verbatim(Span(first, third), panic=False)) == [PartRef(first)]
    assert list(branch.parts_kept_verbatim(Span(1, first), panic=False)) == [PartRef(first)]
    assert list(branch.parts_kept_verbatim(Span(second, third), panic=False)) == []
    assert list(branch.parts_kept_verbatim(Span(first, third), panic=True)) == []


def test_what_stands_beside_the_reasoning_of_an_open_loop_can_be_taken_out() -> None:
    talk = Talk()
    talk.user("go")
    parts = (Reasoning("because", 5), Text("so", 2), ToolCall("a", "read", "{}", 3))
    seq = talk.add(ModelReplied(parts, "m", Stop.CALLS))
    talk.output("a")
    talk.add(Excluded(PartRef(seq, 0)))
    talk.add(Excluded(PartRef(seq, 1)))
    assert list(talk.state.branch.exclusions) == [PartRef(seq, 1)]


def test_a_note_is_all_its_texts() -> None:
    talk = Talk()
    seq = talk.add(UserSaid((Text("one ", 1), Text("two", 1)), by="a skill"))
    assert talk.state.branch.notes["a skill"] == (seq, "one two")


def test_a_fold_covers_messages_that_are_there_in_their_order_and_before_itself() -> None:
    talk = Talk()
    first = talk.user("a long question", tokens=100)
    last = talk.step("a long answer", tokens=100)
    next_seq = talk.state.seq + 1

    def is_valid(first_seq: int, last_seq: int, *, tokens: int = 5) -> bool:
        fold = Folded("h", FoldKind.HANDOVER, Span(first_seq, last_seq), "text", tokens, 1_000)
        return talk.state.branch.is_valid_fold(next_seq, fold)

    assert is_valid(first, last)
    assert not is_valid(0, last), "facts are numbered from 1"
    assert not is_valid(last, first)
    assert not is_valid(first, next_seq), "it would cover itself"
    assert not is_valid(next_seq + 1, next_seq + 2)
    assert not is_valid(first, last, tokens=10_000), "it would be longer"


def test_the_fold_of_a_part_names_a_part_that_is_there() -> None:
    talk = Talk()
    message = talk.user("a long question", tokens=100)

    def is_valid(ref: PartRef) -> bool:
        fold = Folded("e", FoldKind.EXCERPT, ref, "text", 5, 100)
        return talk.state.branch.is_valid_fold(talk.state.seq + 1, fold)

    assert is_valid(PartRef(message))
    assert not is_valid(PartRef(message, 1)), "it has one part"
    assert not is_valid(PartRef(message + 1))
