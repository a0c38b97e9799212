"""What an agent says of its work that is worth keeping."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import agent_findings

FOUND = "The cache is cleared before it is read, so that the second request never finds what the first one wrote."


def test_before_a_change_two_lines_of_what_was_found_are_enough_and_before_another_call_there_must_be_more() -> (
    None
):
    remark = f"I see. {FOUND} Let me fix that:"
    assert agent_findings.reports_finding(remark, changes=True)
    assert not agent_findings.reports_finding(remark, changes=False)
    assert agent_findings.reports_finding(f"{FOUND} {remark}", changes=False)


@pytest.mark.parametrize(
    "text",
    [
        "Let me look at the cache.",
        "Good. Now let me read the whole of the cache, and then the part of the server that writes it, to see both.",
        "I'll begin with the tests, and with the parts of the cache that they use, before anything is changed.",
        "Ich werde zuerst die Tests lesen, und danach den Teil des Servers, der in den Zwischenspeicher schreibt.",
        "The cache is cleared.",
        FOUND * 11,
    ],
)
def test_what_is_announced_is_no_finding_and_neither_is_a_line_or_an_essay(text: str) -> None:
    assert not agent_findings.reports_finding(text, changes=True)


def test_the_beginning_of_an_answer_is_a_report() -> None:
    assert (
        agent_findings.extract_report(FOUND * 11) == (FOUND * 11)[: agent_findings.LONGEST_REPORT]
    )
    assert agent_findings.extract_report("Done.") == ""
    assert agent_findings.extract_report('{\n  "reason": "' + FOUND + '"\n}') == ""


@pytest.mark.parametrize(
    "sentence",
    [
        "**Root cause:** the cache is cleared too early",
        "The problem was that the cache is cleared too early.",
        "✅ Solution 2 - clear the cache once it was read",
        "Die Ursache ist, dass der Speicher zu früh geleert wird.",
        "根本原因：缓存清除得太早",
    ],
)
def test_labelled_sentences_are_conclusions(sentence: str) -> None:
    assert list(
        agent_findings.find_conclusions(f"Hello there.\n{sentence}\nBye now, and thank you")
    ) == [sentence]


def test_what_is_labelled_in_data_or_only_mentions_a_cause_is_no_conclusion() -> None:
    assert (
        list(
            agent_findings.find_conclusions(
                '"reason": "the cause is that the cache is cleared"\nI do not know the cause yet.'
            )
        )
        == []
    )


def test_open_are_the_items_below_a_line_that_says_they_remain_and_boxes_that_are_not_ticked() -> (
    None
):
    text = "Done:\n- the reader\n\nNext steps:\n1. Write the parser\n\n2) Test it\nThat is all\n- an item\n- [ ] ask Ann\n- [x] ask Bob"
    assert list(agent_findings.find_tasks_left_open(text)) == [
        "Write the parser",
        "Test it",
        "ask Ann",
    ]


@given(
    st.text()
    | st.lists(
        st.sampled_from(["Cause: ", "- ", "[ ] ", "Remaining:\n", "\n", "word ", "。", "原因："])
    ).map("".join)
)
def test_what_is_kept_was_said(text: str) -> None:
    assert text.startswith(agent_findings.extract_report(text))
    assert set(agent_findings.find_conclusions(text)) <= set(agent_findings.split_sentences(text))
    assert all(task in text for task in agent_findings.find_tasks_left_open(text))


def test_a_page_of_empty_lines_takes_no_quadratic_time() -> None:
    """A pattern holds the interpreter: for seconds the window would not be painted."""
    start = time.thread_time()
    assert agent_findings.extract_report("\n" * 60_000 + FOUND)
    assert not agent_findings.extract_report("\n" * 60_000 + '  "reason": 1' + FOUND)
    assert time.thread_time() - start < 2
