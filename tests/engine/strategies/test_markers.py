"""Caching: what becomes a marker, when it is due, and what a marker says."""

from __future__ import annotations

import itertools
import sys
from types import FrameType

import pytest

from helix_desktop.engine import context_policy, context_usage, message_blocks
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.facts import (
    Excluded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Stop,
    ToolCall,
    ToolReturned,
    Unfolded,
)
from helix_desktop.engine.strategies import markers
from helix_desktop.engine.strategies.fold_strategy import FoldSituation
from tests.engine.talk import Talk, stored


def situation(talk: Talk, chosen: Policy | None = None, *, pause: float = 5.0) -> FoldSituation:
    chosen = chosen or context_policy.preset_policy("layered").with_thresholds({"tail_steps": 8})
    return FoldSituation(
        talk.state,
        chosen,
        context_usage.measure_window(talk.state, chosen),
        talk.state.time_of_moment + pause,
    )


def due(talk: Talk, chosen: Policy | None = None, *, pause: float = 5.0) -> list[PartRef]:
    now = situation(talk, chosen, pause=pause)
    clearing = markers.find_due_clearing(now)
    return clearing.parts_to_clear(now) if clearing else []


HELIX = context_policy.preset_policy("helix")


def test_after_n_steps_outputs_of_some_length() -> None:
    talk = Talk()
    talk.user("go")
    outputs = talk.steps(15, tokens=600)
    short = talk.step("short", tokens=499)
    talk.steps(11, tokens=10)
    assert due(talk, HELIX) == [PartRef(seq) for seq in outputs]
    assert PartRef(short) not in due(talk, HELIX)


def test_after_n_steps_nothing_of_the_last_n() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(20, tokens=600)
    assert due(talk, HELIX) == []
    talk.step("one more", tokens=600)
    assert len(due(talk, HELIX)) == 11


def test_old_outputs_become_markers_in_groups_so_that_the_rest_is_rarely_cached_anew() -> None:
    """One marker at each step made the preset dearer than sending everything."""
    talk = Talk()
    talk.user("go")
    times = 0
    for number in range(60):
        talk.step(f"c{number}", tokens=600)
        cleared = due(talk, HELIX)
        times += bool(cleared)
        for ref in cleared:
            talk.fold(f"m{ref.seq}", ref, kind=FoldKind.MARKER)
    assert times == 4
    assert len(talk.state.live_folds) >= 40


def test_between_turns_the_last_turn_is_left_alone() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(25, tokens=600)
    assert len(due(talk, HELIX)) == 15
    from helix_desktop.engine.facts import TurnEnd, TurnEnded

    talk.add(TurnEnded(TurnEnd.DONE))
    assert due(talk, HELIX) == []


def test_it_pays_when_much_comes_free_and_little_stays_behind() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(9, tokens=300)
    assert due(talk) == []
    talk.steps(30, tokens=2_500)
    assert len(due(talk)) > 10


def test_it_pays_sooner_the_dearer_a_cache_read_is() -> None:
    def steps_until_due(read: float, write: float) -> int:
        talk = Talk()
        talk.add(ModelSet(ModelRole.MAIN, "m", 128_000, 0, 1.0, 5.0, read, write))
        talk.user("go")
        for count in range(60):
            talk.step(f"s{count}", tokens=1_500)
            if due(talk):
                return count
        return 60

    assert steps_until_due(0.5, 1.0) <= steps_until_due(0.1, 1.25) <= steps_until_due(0.02, 1.0)
    assert steps_until_due(1.0, 1.0) <= 13


def test_after_a_pause_a_third_of_the_context_is_enough() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(16, tokens=800)
    warm = due(talk)
    cold = due(talk, pause=1_000)
    assert len(cold) == 8
    assert len(warm) <= len(cold)
    few = Talk()
    few.user("go", tokens=50_000)
    few.steps(9, tokens=500)
    assert due(few, pause=1_000) == []


def test_pins_exclusions_and_what_was_brought_back_stay() -> None:
    talk = Talk()
    talk.user("go")
    one, two, three, four, *_ = talk.steps(25, tokens=600)
    talk.add(Pinned(PartRef(one)))
    talk.add(Excluded(PartRef(two)))
    talk.fold("m", PartRef(three), kind=FoldKind.MARKER, tokens=60)
    talk.add(Unfolded("m"))
    assert due(talk, HELIX)[0] == PartRef(four)


def test_a_part_is_cleared_from_the_asked_size_on_unless_it_is_pinned() -> None:
    talk = Talk()
    talk.user("go")
    exact, pinned = talk.steps(2, tokens=600)
    talk.add(Pinned(PartRef(pinned)))
    now = situation(talk)

    def cleared(least: float) -> list[int]:
        items = now.branch.items_from_fact(1)
        parts = [markers.tokens_freed_by_part(now, item, least) for item in items]
        return [ref.seq for ref, _ in itertools.chain.from_iterable(parts)]

    assert cleared(600) == [exact]
    assert cleared(601) == []


def write(talk: Talk, name: str, path: str, tokens: int) -> PartRef:
    call = ToolCall(name, "write", f'{{"path": "{path}", "text": "{"x" * 2_000}"}}', tokens)
    seq = talk.add(ModelReplied((call,), "m", Stop.CALLS))
    talk.add(ToolReturned(name, stored("ok"), 5))
    return PartRef(seq)


def test_arguments_go_only_where_the_policy_says_so() -> None:
    talk = Talk()
    talk.user("go")
    old = [write(talk, f"w{index}", "a.py", 3_000) for index in range(6)]
    short = write(talk, "short", "b.py", 900)
    talk.steps(10, tokens=20)
    asked = context_policy.preset_policy("layered").with_thresholds({"arguments": True})
    assert due(talk, asked, pause=1_000) == old
    assert short not in due(talk, asked, pause=1_000)
    assert due(talk, context_policy.preset_policy("layered"), pause=1_000) == []


def test_a_small_part_of_the_context_is_not_worth_a_marker() -> None:
    """A recall of it would read the whole context again."""
    talk = Talk()
    talk.user("go", tokens=20_000)
    small = talk.steps(6, tokens=300)
    large = talk.steps(6, tokens=3_000)
    talk.steps(8, tokens=20)
    chosen = due(talk, pause=1_000)
    assert set(map(PartRef, large)) == set(chosen)
    assert not set(map(PartRef, small)) & set(chosen)


def test_growth_and_pauses_are_learned_from_the_last_steps() -> None:
    talk = Talk()
    talk.user("go")
    assert markers.clearable_tokens_per_step(talk.state.branch) == 0
    assert markers.chance_of_cold_cache(situation(talk)) == 0
    talk.steps(4, tokens=1_090)
    assert markers.clearable_tokens_per_step(talk.state.branch) == 1_000
    from helix_desktop.engine.facts import TodoSet

    talk.add(TodoSet(()), after=1_000)
    talk.steps(1, tokens=1_090)
    assert markers.chance_of_cold_cache(situation(talk)) == pytest.approx(1 / 4)


def test_a_view_of_very_many_items_is_looked_at_in_groups() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(700, tokens=600)
    now = situation(talk)
    standing = markers._measure_context_parts(now, talk.state.branch.steps[-8])
    assert len(standing) < 600
    assert [part.first for part in standing] == sorted(part.first for part in standing)
    assert sum(part.tokens for part in standing) == sum(
        item.tokens for item in talk.state.branch.items
    )
    assert len(due(talk)) > 600


def test_short_outputs_are_not_looked_at_one_by_one() -> None:
    """Of a very long history, they would hold up everybody for half a second at each step."""
    calls = []
    for number in (50, 900):
        talk = Talk()
        talk.user("go")
        long = talk.step("long", tokens=6_000)
        talk.steps(number, tokens=200)
        now = situation(talk)
        count = 0
        clearing = markers.PlannedClearing(1, talk.state.branch.steps[-8], "asked")

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            chosen = clearing.parts_to_clear(now)
            freed = markers.count_freed_tokens(now, clearing)
        finally:
            sys.setprofile(None)
        assert (chosen, freed) == ([PartRef(long)], 6_000 - 90)
        calls.append(count)
    assert calls[0] == calls[1]


# --- markers


def test_the_first_line_is_exactly_the_call_that_brings_the_original_back() -> None:
    digest = stored("the output").digest
    first, second = markers.format_marker(digest, "read a.py\n · 3 lines").split("\n")
    assert first == f'[CACHED] recall_cached_content("{digest.hex}")'
    assert second == "read a.py · 3 lines"


def test_the_second_line_says_tool_arguments_exit_code_lines_and_size() -> None:
    talk = Talk()
    talk.user("go")
    call = ToolCall("a", "run", '{"command": "pytest -q", "timeout": 5}', 10)
    talk.add(ModelReplied((call,), "m", Stop.CALLS))
    seq = talk.add(ToolReturned("a", stored("x\n" * 2_000), 900, ok=False, exit_code=2))
    assert (
        markers.describe_output(talk.state.branch, seq)
        == "run pytest -q 5 · exit 2 · 2,001 lines · 4.0 KB"
    )
    talk.add(ModelReplied((ToolCall("b", "run", call.arguments, 10),), "m", Stop.CALLS))
    words = "The user denied this call, so it was not run."
    refused = talk.add(ToolReturned("b", stored(words), 12, ok=False, head=words))
    assert (
        markers.describe_output(talk.state.branch, refused)
        == "run pytest -q 5 · not run · 1 line · 45 B"
    )


def test_arguments_in_short() -> None:
    assert markers.summarise_arguments('{"path": "a.py", "text": "' + "x" * 500 + '"}') == "a.py"
    assert markers.summarise_arguments('{"text": "' + "x" * 500 + '"}') == "x" * 99 + "…"
    assert markers.summarise_arguments("{broken") == "{broken"
    assert markers.summarise_arguments('["a", "b"]') == "['a', 'b']"


def test_a_cleared_argument_keeps_its_short_values_and_its_shape() -> None:
    long = "x" * 2_000
    one = message_blocks.replace_long_argument_values(
        f'{{"path": "a.py", "text": "{long}", "n": 3}}', "MARKER"
    )
    assert one == '{"path": "a.py", "text": "MARKER", "n": 3}'
    two = message_blocks.replace_long_argument_values(
        f'{{"old": "{long}", "new": "{long}"}}', "MARKER"
    )
    assert two == f'{{"old": "MARKER", "new": "{message_blocks.SAME_ENTRY}"}}'
    assert (
        message_blocks.replace_long_argument_values('{"many": "short"}', "MARKER")
        == '{"many": "short", "cached": "MARKER"}'
    )
    assert markers.content_to_store(f'{{"path": "a.py", "text": "{long}"}}') == long
    assert markers.content_to_store(f'{{"old": "{long}", "new": "{long}"}}').startswith('{"old"')
    assert markers.content_to_store("{broken") == "{broken"


def recalling(count: int) -> Talk:
    """A long turn whose agent has recalled something before each of its last `count`
    steps, after folds saved little.
    """
    talk = Talk()
    talk.user("go")
    first = talk.steps(4, tokens=2_000)
    for number, seq in enumerate(first):
        talk.fold(f"m{number}", PartRef(seq), kind=FoldKind.MARKER, tokens=60)
    for number in range(count):
        talk.reply("", f"r{number}:recall_cached_content")
        talk.output(f"r{number}", tokens=20)
    talk.steps(30, tokens=1_000)
    return talk


def test_where_recalls_eat_what_folds_save_nothing_more_is_cleared() -> None:
    assert due(recalling(0))
    assert not due(recalling(40))
    assert markers.measure_fold_experience(situation(recalling(0))).net_share > 0.7
    assert markers.measure_fold_experience(situation(recalling(40))).net_share == 0


def test_in_a_short_context_a_marker_must_pay_for_the_recall_it_may_lead_to() -> None:
    def talk_of(steps: int) -> Talk:
        talk = Talk()
        talk.user("go")
        talk.steps(1, tokens=5_000)
        talk.steps(steps, tokens=150)
        return talk

    assert due(talk_of(10)) == []
    assert due(talk_of(10), pause=1_000), "after a pause all is written again anyway"
    assert due(talk_of(20))
