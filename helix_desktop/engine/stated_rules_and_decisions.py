"""Tells whether a sentence states a rule, a limit, a preference or a decision, by words
of its language.

The words of rules and preferences are in `resources/rule_words.json`. A sentence with such a word
is kept word for word. `rules` are words of demands. `wishes` also occur in other sentences, so they
come second if there is little room. Both are generous: a sentence too many costs a few tokens, and
a sentence too few loses a rule. The lists named `…_inside` are matched anywhere in a word, as their
languages do not mark where words end.
"""

import functools
import re

from helix_desktop.resources import read_json_resource

_DECIDED = re.compile(
    r"\b(?:let'?s (?:go with|use|keep|do|not|drop|switch)|we(?:'ll| will| decided"
    r"| agreed)\b|go(?:ing)? with|i (?:have )?decided|i'd rather|wir nehmen"
    r"|nehmen wir|wir machen|entschieden)",
    re.IGNORECASE,
)


@functools.cache
def read_rule_words(name: str) -> tuple[str, ...]:
    """Return the words of a list, in all languages."""
    words_by_language = read_json_resource("rule_words.json")[name]
    words: list[str] = []
    for words_of_language in words_by_language.values():
        words += words_of_language
    return tuple(words)


@functools.cache
def _word_pattern(name: str) -> re.Pattern[str]:
    # Longer words come first, since the first one that matches counts.
    words = sorted(set(read_rule_words(name)), key=len, reverse=True)
    whole_words = "|".join(map(re.escape, words))
    alternatives = [rf"(?<!\w)(?:{whole_words})(?!\w)"]
    for word in read_rule_words(f"{name}_inside"):
        alternatives.append(re.escape(word))
    return re.compile("|".join(alternatives), re.IGNORECASE)


def states_a_rule(sentence: str) -> bool:
    """Whether the sentence demands something, in any supported language."""
    return _has_word_of_list(sentence, "rules")


def states_a_wish(sentence: str) -> bool:
    """Whether the sentence may state a limit or preference, by words that also mean
    other things.
    """
    return _has_word_of_list(sentence, "wishes")


def states_a_decision(sentence: str) -> bool:
    return _DECIDED.search(sentence) is not None


def _has_word_of_list(sentence: str, name: str) -> bool:
    with_plain_apostrophes = sentence.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return bool(_word_pattern(name).search(with_plain_apostrophes))
