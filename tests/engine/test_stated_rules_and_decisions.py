"""The words by which people state rules, one pack a language."""

from __future__ import annotations

import pytest

from helix_desktop.engine.stated_rules_and_decisions import (
    read_rule_words,
    states_a_rule,
    states_a_wish,
)


def test_every_word_of_every_pack_makes_a_sentence_a_rule() -> None:
    words = [*read_rule_words("rules"), *read_rule_words("rules_inside")]
    assert len(words) > 250
    assert [word for word in words if not states_a_rule(f"… {word} …")] == []


@pytest.mark.parametrize(
    "sentence",
    ["The museum is open.", "I mustered my courage.", "It was raining.", "文件在这里。", ""],
)
def test_other_sentences_are_none(sentence: str) -> None:
    assert not states_a_rule(sentence)
    assert not states_a_wish(sentence)


def test_typographic_apostrophes_and_capitals() -> None:
    assert states_a_rule("DON\N{RIGHT SINGLE QUOTATION MARK}T touch it")
    assert states_a_rule("MÜSSEN wir?")
