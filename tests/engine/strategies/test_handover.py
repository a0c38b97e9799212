"""Handovers: when they are due, what is asked, how an answer is read."""

from __future__ import annotations

import pytest

from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import FoldKind, ModelRole, ModelSet, Span, SystemSet
from helix_desktop.engine.strategies import handover
from helix_desktop.engine.strategies.fold_strategy import FoldPlan
from helix_desktop.engine.strategies.handover import (
    SECTIONS,
    find_missing_sections,
    handover_question,
    missing_sections_question,
    split_handover_sections,
)
from tests.engine.strategies.test_markers import situation
from tests.engine.talk import Talk

HELIX = context_policy.preset_policy("helix")
LAYERED = context_policy.preset_policy("layered").with_thresholds({"tail_steps": 8})


def long_talk(tokens: int, *, steps: int = 40, window: int = 100_000) -> Talk:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", window))
    talk.user("go")
    talk.steps(steps, tokens=tokens // steps)
    return talk


def test_at_its_share_of_the_window_and_not_before() -> None:
    assert handover.find_due_handover(situation(long_talk(80_000), HELIX)) is None
    plan = handover.find_due_handover(situation(long_talk(86_000), HELIX))
    assert plan is not None
    assert plan.kind is FoldKind.HANDOVER
    assert "the context window is 8" in plan.why
    assert not plan.panic
    plan = handover.find_due_handover(situation(long_talk(120_000), HELIX))
    assert plan is not None
    assert plan.why == "the next request is too long for this model"


def test_in_a_small_window_it_starts_before_the_turn_would_have_to_wait() -> None:
    talk = long_talk(25_700, window=32_000)
    meter = situation(talk, HELIX).meter
    assert meter.request_fits
    assert handover.find_due_handover(situation(talk, HELIX)) is not None


def test_when_it_pays() -> None:
    assert handover.find_due_handover(situation(long_talk(36_000, steps=12), LAYERED)) is None
    assert (
        handover.find_due_handover(situation(long_talk(60_000, steps=20, window=400_000), LAYERED))
        is None
    )
    plan = handover.find_due_handover(
        situation(long_talk(80_000, steps=200, window=400_000), LAYERED)
    )
    assert plan is not None
    assert "input tokens" in plan.why


def test_it_pays_later_the_cheaper_a_cache_read_is() -> None:
    def steps_until_due(read: float) -> int:
        talk = Talk()
        talk.add(ModelSet(ModelRole.MAIN, "m", 1_000_000, 0, 1.0, 5.0, read, 1.0))
        talk.user("go")
        for count in range(400):
            talk.step(f"s{count}", tokens=500)
            if handover.find_due_handover(
                situation(talk, LAYERED.with_thresholds({"handover_floor_tokens": 0}))
            ):
                return count
        return 400

    assert steps_until_due(0.5) < steps_until_due(0.1) < steps_until_due(0.02)


def test_it_pays_later_beside_a_large_system_prompt_which_each_recall_reads_again() -> None:
    def steps_until_due(system: int) -> int:
        talk = Talk()
        talk.add(SystemSet("You are an agent.", system))
        talk.add(ModelSet(ModelRole.MAIN, "m", 1_000_000, 0, 1.0, 5.0, 0.1, 1.25))
        talk.user("go")
        policy = LAYERED.with_thresholds({"handover_floor_tokens": 0})
        return next(
            n
            for n in range(400)
            if talk.step(f"s{n}", tokens=500)
            and handover.find_due_handover(situation(talk, policy))
        )

    assert steps_until_due(500) == steps_until_due(1_900)
    assert steps_until_due(1_900) + 5 < steps_until_due(17_415)


def test_not_within_the_cooldown_and_not_for_few_facts() -> None:
    talk = long_talk(95_000)
    talk.fold("h", Span(2, 5))
    assert handover.find_due_handover(situation(talk, HELIX, pause=1.0)) is None
    assert handover.find_due_handover(situation(talk, HELIX, pause=61.0)) is not None
    few = Talk()
    few.add(ModelSet(ModelRole.MAIN, "m", 100_000))
    few.user("go", tokens=90_000)
    few.steps(9, tokens=10)
    assert handover.find_due_handover(situation(few, HELIX)) is None


@pytest.mark.parametrize("chosen", ["off", "panic"])
def test_off_and_in_panic_only(chosen: str) -> None:
    assert (
        handover.find_due_handover(
            situation(long_talk(99_000), LAYERED.with_thresholds({"handover": chosen}))
        )
        is None
    )


def test_the_cheaper_writer_writes() -> None:
    talk = long_talk(60_000)
    span = Span(2, 60)
    assert handover.should_main_model_write(situation(talk, LAYERED), span)
    talk.add(ModelSet(ModelRole.MAIN, "m", 100_000, 0, 5.0, 25.0, 0.5, 6.25))
    talk.add(ModelSet(ModelRole.FAST, "f", 100_000, 0, 0.1, 0.4))
    assert not handover.should_main_model_write(situation(talk, LAYERED), span)
    assert handover.should_main_model_write(
        situation(talk, LAYERED.with_thresholds({"handover_writer": "main"})), span
    )
    talk.add(ModelSet(ModelRole.FAST, "f", 100_000, 0, 5.0, 25.0))
    assert handover.should_main_model_write(situation(talk, LAYERED), span)
    assert not handover.should_main_model_write(
        situation(talk, LAYERED.with_thresholds({"handover_writer": "fast"})), span
    )


def test_a_document_is_expected_to_be_as_long_as_those_before() -> None:
    talk = long_talk(60_000)
    assert handover.expected_document_tokens(situation(talk)) == 3_000
    talk.fold("h", Span(2, 20), tokens=1_000)
    assert handover.expected_document_tokens(situation(talk)) == 1_000
    talk.fold("longer", Span(2, 40), tokens=2_000)
    assert handover.expected_document_tokens(situation(talk)) == 1_500
    assert handover.expected_document_tokens(situation(long_talk(5_000, window=20_000))) == 2_000


def test_the_question_names_the_six_sections_and_the_wish() -> None:
    text = handover_question(
        FoldPlan(FoldKind.HANDOVER, Span(1, 90), "", wish="the table of results"),
        handover.EXPECTED_TOKENS,
        8,
    )
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS)
    assert "number 90" in text
    assert "the table of results" in text
    assert missing_sections_question(["TODO Items"]).endswith("## TODO Items")


@pytest.mark.parametrize(
    "form",
    [
        "## {}",
        "# {}",
        "**{}**",
        "### {}:",
        "1. {}",
        "## 2) {}",
        "{}:",
        "{}",
        "**{}:**",
        "## **{}**",
    ],
)
def test_sections_are_found_in_the_forms_models_give_them(form: str) -> None:
    text = "\n".join(f"{form.format(name)}\n- about {name.lower()}, in words" for name in SECTIONS)
    assert split_handover_sections(text) == {
        name: f"- about {name.lower()}, in words" for name in SECTIONS
    }


def test_a_fence_around_the_document_is_no_part_of_it() -> None:
    inner = "\n".join(f"## {name}\n```\nmake {name.split()[0]}\n```" for name in SECTIONS)
    plain = split_handover_sections(inner)
    assert split_handover_sections(f"```markdown\n{inner}\n```") == plain
    assert split_handover_sections(f"```\n\n{inner}") == plain, (
        "where the answer was cut off the last fence is the document's own"
    )
    assert (
        split_handover_sections(f"Here it is:\n```md\n{inner}\n```\n")["User Preferences"]
        == plain["User Preferences"]
    )


def test_sections_that_are_missing_or_say_nothing_are_lacking() -> None:
    found = split_handover_sections("## Project Background\nx\n## TODO Items\n\n## todo items\n")
    assert find_missing_sections(found) == [
        name for name in SECTIONS if name != "Project Background"
    ]


def test_text_under_another_heading_stays_where_it_stands() -> None:
    assert split_handover_sections("## TODO Items\none\n## Other Things\ntwo") == {
        "TODO Items": "one\n## Other Things\ntwo"
    }


def test_text_under_no_known_heading_counts_as_done_work() -> None:
    assert split_handover_sections("we did things\n## TODO Items\nmore") == {
        "TODO Items": "more",
        "Completed Work": "we did things",
    }
    assert split_handover_sections("") == {}
