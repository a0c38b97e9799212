"""Writing a document rung by rung: who is asked with what, and what is made of the answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine.conversation_details import CRITICAL, Detail
from helix_desktop.engine.details_entry import parse_details_entry
from helix_desktop.engine.facts import (
    Folded,
    FoldFailed,
    FoldKind,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Span,
    Spent,
    TodoSet,
)
from helix_desktop.engine.fold_document_writer import (
    LOST_PART,
    MERGE_NOTE,
    PART_NOTE,
    DocumentMaterial,
    FoldDocumentWriter,
    NoDocumentWritten,
    _split_and_join_passages,
    gather_material,
    is_material_current,
)
from helix_desktop.engine.messages import Request
from helix_desktop.engine.span_text_and_detail_sources import SpanText
from helix_desktop.engine.state.view_items import ViewItem
from helix_desktop.engine.strategies.fold_strategy import FoldPlan
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.engine.unknown_names import find_unknown_names_of_fold
from helix_desktop.errors import ActionRefused, ContextTooLong, ModelOverloaded
from tests.engine.keeping import Keeping, empty, fails, good, keeping, wrong_form
from tests.engine.test_automatic_folding import worked


async def with_history(steps: int = 14, **values: Any) -> Keeping:
    kept = await keeping(window=1_000_000, **values)
    await kept.say("the task: never delete /srv/data")
    await worked(kept, steps, 300)
    return kept


async def test_the_main_model_writes_over_its_own_context() -> None:
    kept = await with_history(handover_writer="main")
    before = await kept.request()
    (recorded,) = await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (asked,) = kept.writers["main"].requests
    assert asked.purpose == "handover"
    assert asked.messages[: len(before.messages) - 1] == before.messages[:-1]
    assert asked.messages[-1].parts[: len(before.messages[-1].parts)] == before.messages[-1].parts
    assert recorded.fact.model == "main"  # type: ignore[union-attr]


async def test_a_model_that_has_the_history_itself_is_sent_the_question_alone() -> None:
    """The gateway asks behind the agent's own request: of a long history, building ours
    took as much memory again.
    """
    kept = await with_history(handover_writer="main")
    kept.writers["main"].has_own_history = True
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (asked,) = kept.writers["main"].requests
    assert len(asked.messages) == 1
    assert "## " in str(asked.messages[-1].parts[-1])
    assert kept.folds()[0].model == "main"


async def test_a_fast_model_reads_a_transcript_of_what_is_covered() -> None:
    kept = await with_history(handover_writer="fast")
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (asked,) = kept.writers["fast"].requests
    text = str(asked.messages)
    assert "user: the task: never delete /srv/data" in text
    assert "call of read" in text
    assert len(asked.messages) == 1
    assert "never instructions" in asked.system
    (fold,) = kept.folds()
    assert isinstance(fold.cover, Span)
    assert f"[{fold.cover.last + 1}]" not in text


async def test_the_next_rung_takes_over() -> None:
    kept = await with_history(handover_writer="main")
    kept.writers["main"].answer = fails
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.folds()[0].model == "fast"


async def test_the_long_window_model_reads_what_no_other_can() -> None:
    kept = await keeping(window=1_000_000, long=True, handover_writer="fast", caching="off")
    await kept.say("the task")
    await worked(kept, 20, 500)
    await kept.conversation.append_facts(ModelSet(ModelRole.FAST, "fast", 6_000))
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.folds()[0].model == "long"
    assert kept.writers["fast"].requests == []


@pytest.mark.parametrize("window", [8_000, 4_000])
async def test_a_long_history_is_summarized_in_pieces_and_the_summaries_together(
    window: int,
) -> None:
    kept = await keeping(window=1_000_000, handover_writer="fast", caching="off")
    await kept.say("the task")
    await worked(kept, 20, 500)
    await kept.conversation.append_facts(ModelSet(ModelRole.FAST, "fast", window))
    del kept.writers["main"]
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    asked = kept.writers["fast"].requests
    assert len(asked) > 2
    assert PART_NOTE.strip() in str(asked[0].messages)
    assert MERGE_NOTE.strip() in str(asked[-1].messages)
    (fold,) = kept.folds()
    assert (fold.kind, fold.model) == (FoldKind.HANDOVER, "fast")
    assert all(
        kept.tokens.count_tokens(str(request.messages)) + request.max_output < window
        for request in asked
    )


async def test_a_piece_that_fails_does_not_lose_the_others() -> None:
    kept = await keeping(window=1_000_000, handover_writer="fast", caching="off")
    await kept.say("the task")
    await worked(kept, 20, 500)
    await kept.conversation.append_facts(ModelSet(ModelRole.FAST, "fast", 8_000))
    del kept.writers["main"]
    writer = kept.writers["fast"]
    writer.answer = lambda request: fails(request) if len(writer.requests) == 2 else good(request)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert len(kept.folds(FoldKind.HANDOVER)) == 1
    assert LOST_PART in str(writer.requests[-1].messages)


class DenseBeginnings:
    """Tokens of answers that begin with Chinese: each of those letters is one."""

    def count_tokens(self, text: str) -> int:
        return text.count("工") + -(-len(text.replace("工", "")) // 4)


async def test_two_answers_of_a_piece_fit_into_one_request_even_if_they_begin_with_chinese() -> (
    None
):
    """The defect: an answer was cut once, by its average, and its dense beginning stayed above
    half of a request, so that two of them did not fit into one and nothing was merged.
    """
    kept = await keeping(window=1_000_000)
    writer = replace(kept.folding._writer, tokens=DenseBeginnings())
    answer = "工" * 700 + "and so on. " * 1_000
    cut = writer._cut_answer(answer, 500)
    assert writer.tokens.count_tokens(cut) <= 500
    assert cut.startswith("工" * 100)


async def test_missing_sections_are_asked_for_once_and_then_filled() -> None:
    answers = iter(("## Project Background\nabout the project", "## TODO Items\nonly this one"))
    kept = await with_history(handover_writer="fast")
    kept.writers["fast"].answer = lambda _: next(answers)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    first, second = kept.writers["fast"].requests
    assert all(name in str(second.messages) for name in SECTIONS[1:])
    (fold,) = kept.folds()
    assert "about the project" in fold.text
    assert "only this one" in fold.text
    assert all(f"## {name}" in fold.text for name in SECTIONS)
    assert first.purpose == second.purpose == "handover"


async def test_a_fast_model_that_is_out_of_order_is_replaced_by_the_main_one() -> None:
    kept = await with_history(handover_writer="fast")
    kept.writers["fast"].answer = fails
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.folds()[0].model == "main"


async def test_a_model_that_goes_on_with_the_work_in_place_of_writing_is_asked_apart_from_it() -> (
    None
):
    answers = iter(("Let me look at src/a.py first.", good))
    kept = await with_history(handover_writer="main")
    kept.writers["main"].answer = lambda request: str(
        answer(request) if callable(answer := next(answers)) else answer
    )
    del kept.writers["fast"]
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert [len(asked.messages) == 1 for asked in kept.writers["main"].requests] == [False, True]
    assert "Let me look" not in kept.folds()[0].text


async def test_what_was_paid_for_a_document_that_is_stopped_is_recorded() -> None:
    kept = await with_history(handover_writer="fast")
    started = asyncio.Event()

    def answer(_: Request) -> str:
        if started.is_set():
            kept.writers["fast"].hangs = True
        started.set()
        return "## Completed Work\nsome of it"

    kept.writers["fast"].answer = answer
    kept.writers["fast"].pauses = (0, 0, 0)
    folding = kept.tasks.spawn_task(kept.folding.fold_on_demand(FoldKind.HANDOVER), name="asked")
    while len(kept.writers["fast"].requests) < 2:
        await asyncio.sleep(0)
    kept.folding.cancel_fold_in_work()
    with pytest.raises(NoDocumentWritten, match="you stopped it"):
        await folding
    assert [one.fact.usage.input for one in kept.facts if isinstance(one.fact, Spent)] == [100]


async def test_an_answer_in_no_form_at_all_is_taken_as_it_is() -> None:
    kept = await with_history(handover_writer="fast")
    kept.writers["fast"].answer = wrong_form
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds()
    assert "none of the ones you asked for" in fold.text
    assert "never delete /srv/data" in await kept.shown()


async def test_what_everything_cost_is_recorded_with_the_fold() -> None:
    kept = await with_history(handover_writer="fast")
    kept.writers["fast"].answer = wrong_form
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    spent = [one.fact for one in kept.facts if isinstance(one.fact, Spent)]
    assert [one.model for one in spent] == [
        "fast"
    ] * 2  # the document, and then the sections that are missing
    assert all(one.usage.input == 100 for one in spent)


async def test_where_no_rung_works_the_first_reason_is_told_and_what_each_said_is_kept() -> None:
    kept = await with_history()

    def is_busy(_: object) -> str:
        raise ModelOverloaded("it is busy; try later")

    kept.writers["main"].answer = is_busy
    kept.writers["fast"].answer = empty
    first = "main, using this conversation's context: it is busy, try later"
    with pytest.raises(NoDocumentWritten, match=f"^Nothing was shortened: {first}$"):
        await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.failures()[0].why.startswith(f"{first}; fast, with the text in one part: ")
    assert "empty" in kept.failures()[0].why
    assert {one.fact.model for one in kept.facts if isinstance(one.fact, Spent)} == {"fast"}


@pytest.mark.parametrize("error", [ContextTooLong("too long"), ModelOverloaded("busy")])
async def test_a_model_that_raises_is_a_rung_that_failed(error: Exception) -> None:
    def raises(_: Request) -> str:
        raise error

    kept = await with_history(handover_writer="main")
    kept.writers["main"].answer = raises
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.folds()[0].model == "fast"


async def test_names_of_an_output_that_the_model_saw_as_an_excerpt_are_no_details() -> None:
    """A fold of 4.7K tokens had an entry of 111 KB: every request id of a log, of which
    the model saw ten lines.
    """
    kept = await keeping(window=32_000, handover_writer="fast")
    await kept.say("the task")
    log = "\n".join(f"GET /orders/{number} id=req{number:06x}zz" for number in range(100, 3_000))
    await kept.step(log, tool="run_command")
    await kept.step("the file /srv/seen_whole.txt", tool="run_command")
    await worked(kept, 12, 300)
    assert kept.folds(FoldKind.EXCERPT)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    first, index = kept.folds(FoldKind.HANDOVER)[0].entries
    entry = (await kept.cache.read_content(first)).decode()
    assert "/orders/1500" not in entry
    assert "/orders/1500" in (await kept.cache.read_content(index)).decode(), "nothing is lost"
    assert index.hex in entry
    assert "/orders/100" in entry, "the excerpt shows the first lines"
    assert "/srv/seen_whole.txt" in entry
    assert len(entry) < 8_000


async def test_the_entry_holds_every_detail_and_a_later_handover_inherits_it() -> None:
    kept = await with_history()
    await kept.step("Traceback\nValueError: the first error of /opt/one.py")
    await worked(kept, 10, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    await kept.step("KeyError: the second error of /opt/two.py")
    await kept.conversation.append_facts(TodoSet((("write the tests", "open"),)))
    await worked(kept, 10, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    one, two = kept.folds(FoldKind.HANDOVER)
    entry = (await kept.cache.read_content(two.entries[0])).decode()
    for wanted in (
        "the first error",
        "/opt/one.py",
        "the second error",
        "/opt/two.py",
        "never delete /srv/data",
    ):
        assert wanted in entry
    assert "Open tasks" in two.text
    assert "write the tests" in two.text
    assert one.entries[0].hex not in two.text
    texts = {
        detail.text
        for detail in parse_details_entry((await kept.cache.read_content(one.entries[0])).decode())
    }
    assert texts <= {detail.text for detail in parse_details_entry(entry)}


async def test_a_document_may_name_what_is_critical_or_stored_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = await with_history()
    await kept.step("Traceback\nValueError: the first error of /opt/one.py")
    named: list[Detail] = []
    gather = FoldDocumentWriter._gather_details

    async def gather_and_note(writer: FoldDocumentWriter, reading: DocumentMaterial) -> Any:
        gathered = await gather(writer, reading)
        named.extend(gathered[0])
        return gathered

    monkeypatch.setattr(FoldDocumentWriter, "_gather_details", gather_and_note)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert {"rule", "stored"} <= {detail.kind for detail in named} <= {*CRITICAL, "stored"}


async def test_an_entry_that_is_gone_is_made_again_from_the_facts() -> None:
    kept = await with_history()
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    kept.cache._entries.pop(kept.folds()[0].entries[0])
    await worked(kept, 10, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    entry = (await kept.cache.read_content(kept.folds(FoldKind.HANDOVER)[-1].entries[0])).decode()
    assert "never delete /srv/data" in entry


async def test_what_the_user_took_out_is_told_to_nobody() -> None:
    from helix_desktop.engine.facts import Excluded

    kept = await keeping(window=1_000_000, handover_writer="fast", caching="off")
    secret = await kept.say("my secret is hunter2_hunter2")
    await kept.conversation.append_facts(Excluded(PartRef(secret)))
    await kept.say("the task")
    await worked(kept, 14, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds()
    assert "hunter2" not in str(kept.writers["fast"].requests)
    assert "hunter2" not in (await kept.cache.read_content(fold.entries[0])).decode()
    assert "hunter2" not in fold.text


async def test_the_same_facts_give_the_same_document() -> None:
    texts = []
    for _ in range(2):
        kept = await with_history()
        await kept.folding.fold_on_demand(FoldKind.HANDOVER)
        texts.append(kept.folds()[0].text)
    assert texts[0] == texts[1]


async def test_others_run_while_the_messages_of_a_long_history_are_looked_through() -> None:
    kept = await with_history(4)
    reading = gather_material(
        FoldPlan(FoldKind.HANDOVER, Span(4, 12), "why"), kept.folding.current_situation()
    )
    turns = 0
    looked_at = Counter[int]()

    class Watched(tuple[ViewItem, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[ViewItem]:
            for item in tuple.__iter__(self):
                looked_at[turns] += 1
                yield item

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    kept.tasks.spawn_task(take_turns(), name="another agent")
    many = replace(reading, items=Watched(reading.items * 1_000))
    await kept.folding._writer._gather_details(many)
    assert looked_at.total() == len(many.items) > 5_000
    assert max(looked_at.values()) <= 2_000


async def test_markers_made_meanwhile_do_not_matter_and_other_changes_do() -> None:
    kept = await with_history()
    situation = kept.folding.current_situation()
    plan = FoldPlan(FoldKind.HANDOVER, Span(4, 12), "why")
    reading = gather_material(plan, situation)
    assert is_material_current(reading, kept.conversation.state)
    await kept.folding.fold_on_demand(FoldKind.MARKER)
    assert is_material_current(reading, kept.conversation.state)
    await kept.conversation.append_facts(Pinned(PartRef(30)))
    assert is_material_current(reading, kept.conversation.state)
    await kept.conversation.append_facts(Pinned(PartRef(6)))
    assert not is_material_current(reading, kept.conversation.state)


async def test_pieces_are_cut_between_messages_and_in_long_ones() -> None:
    passages = [
        SpanText("a" * 10, 10),
        SpanText("b" * 10, 10),
        SpanText("c" * 100, 100),
        SpanText("d", 1),
    ]
    pieces = [piece async for piece in _split_and_join_passages(_yield_all(passages), 25)]
    assert pieces[0] == "a" * 10 + "\n\n" + "b" * 10
    assert (
        "".join(piece.replace("\n", "") for piece in pieces)
        == "a" * 10 + "b" * 10 + "c" * 100 + "d"
    )
    assert all(len(piece) <= 30 for piece in pieces)
    assert [piece async for piece in _split_and_join_passages(_yield_all([]), 25)] == []


async def test_only_so_many_messages_are_read_as_the_next_piece_needs() -> None:
    read: list[SpanText] = []
    pieces = _split_and_join_passages(_yield_all([SpanText("a" * 10, 10)] * 9, read), 20)
    assert await anext(pieces) == "a" * 10 + "\n\n" + "a" * 10
    assert len(read) == 3


async def _yield_all(
    passages: Sequence[SpanText], read: list[SpanText] | None = None
) -> AsyncIterator[SpanText]:
    for passage in passages:
        if read is not None:
            read.append(passage)
        yield passage


async def test_too_little_to_save_is_not_written() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("the task")
    await worked(kept, 9, 20)
    with pytest.raises(ActionRefused, match="too little to shorten"):
        await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert not any(isinstance(each.fact, FoldFailed) for each in kept.conversation.state.facts)
    assert all(writer.requests == [] for writer in kept.writers.values())


async def test_a_document_inherits_all_of_the_entry_before_it() -> None:
    kept = await with_history()
    (first,) = await kept.folding.fold_on_demand(FoldKind.TRUNCATION)
    before = parse_details_entry((await kept.cache.read_content(first.fact.entries[0])).decode())  # type: ignore[union-attr]
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.TRUNCATION)
    entry = await kept.cache.read_content(kept.folds()[-1].entries[0])
    assert {detail.text for detail in before} <= {
        detail.text for detail in parse_details_entry(entry.decode())
    }


def invents(_: Request) -> str:
    """Names a file that was never there."""
    return "\n\n".join(f"## {name}\nIt is in src/never_there.py." for name in SECTIONS)


async def test_names_that_occur_nowhere_cost_no_request() -> None:
    kept = await with_history(handover_writer="main")
    kept.writers["main"].answer = invents
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert len(kept.writers["main"].requests) == 1
    (fold,) = kept.folds()
    assert fold.why == "requested by the user"
    assert await find_unknown_names_of_fold(kept.conversation.state, fold, kept.cache) == [
        "src/never_there.py — It is in src/never_there.py."
    ]


@pytest.mark.parametrize("seconds_set", [31_557_600, -31_557_600, -3_600])
async def test_a_clock_that_is_set_meanwhile_changes_no_length_of_a_fold(seconds_set: int) -> None:
    def answer_after_jump(request: Request) -> str:
        kept.clock.time += seconds_set
        kept.clock.pass_seconds(2)
        return good(request)

    kept = await with_history(handover_writer="main")
    kept.writers["main"].answer = answer_after_jump
    (recorded,) = await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert isinstance(recorded.fact, Folded)
    assert recorded.fact.seconds == 2
