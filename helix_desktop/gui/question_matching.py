"""Finds the texts that answer a question in a person's own words, such as "how do I get it back".

A search for all words finds nothing there: most of them only make the question ("how", "it"), and
a text may say "restored" where somebody asks for "back". So fillers are left out, words of one
meaning are one (`resources/tables/question_words.toml`), and rare words count more than frequent
ones. A text answers if it has the larger half of what was asked; otherwise nothing was found.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache

from helix_desktop.engine.search_query import STOP_WORDS, stem_of_word
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_table

# A word of the title says what the text is about, one of the body only that it is mentioned.
TITLE_WEIGHT = 3.0
BODY_WEIGHT = 1.0
WEIGHT_OF_FAINT_WORD = 0.5
LEAST_COVERAGE = 0.5  # Of what was asked, by the weight of the words.
# A name in code is one word: "is_open" asks neither whether something is, nor how to open it.
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_CHINESE = re.compile("[\u4e00-\u9fff]+")


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A text that may answer a question: what it is about, and what it says."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class _IndexedAnswer:
    """The meanings in an answer's title, and those in its body."""

    title_meanings: frozenset[str]
    body_meanings: frozenset[str]


class QuestionMatcher:
    """Finds those of its texts that answer a question."""

    def __init__(self, answers: Sequence[AnswerText]) -> None:
        self._indexed: list[_IndexedAnswer] = []
        self._frequencies: dict[str, int] = {}
        for answer in answers:
            title_meanings = frozenset(list_meanings(answer.title))
            body_meanings = frozenset(list_meanings(answer.body))
            self._indexed.append(_IndexedAnswer(title_meanings, body_meanings))
            for meaning in title_meanings | body_meanings:
                self._frequencies[meaning] = self._frequencies.get(meaning, 0) + 1

    def says_all(self, position: int, question: str) -> bool:
        """Tells whether a text has every word of the question, or one of the same meaning."""
        answer = self._indexed[position]
        meanings = answer.title_meanings | answer.body_meanings
        return meanings.issuperset(list_meanings(question))

    def positions_of_answers(self, question: str, most: int) -> list[int]:
        """Returns the positions of the texts that answer the question best, the best first."""
        asked = set(list_meanings(question))
        if not asked:
            return []
        scores: dict[int, float] = {}
        for position, answer in enumerate(self._indexed):
            score = self._score_answer(answer, asked)
            if score > 0:
                scores[position] = score
        best_first = sorted(scores, key=lambda position: -scores[position])
        return best_first[:most]

    def _score_answer(self, answer: _IndexedAnswer, asked: set[str]) -> float:
        """Returns 0 for a text that has too little of what was asked."""
        asked_weight = 0.0
        found_weight = 0.0
        score = 0.0
        for meaning in asked:
            weight = self._weigh(meaning)
            asked_weight += weight
            if meaning in answer.title_meanings:
                found_weight += weight
                score += weight * TITLE_WEIGHT
            elif meaning in answer.body_meanings:
                found_weight += weight
                score += weight * BODY_WEIGHT
        coverage = found_weight / asked_weight
        if coverage < LEAST_COVERAGE:
            return 0.0
        return score * coverage * (1.0 + self._share_of_title_asked_for(answer, asked))

    def _share_of_title_asked_for(self, answer: _IndexedAnswer, asked: set[str]) -> float:
        """Of two titles with the same words of the question, the one that says less else fits."""
        title_weight = 0.0
        asked_weight = 0.0
        for meaning in answer.title_meanings:
            weight = self._weigh(meaning)
            title_weight += weight
            if meaning in asked:
                asked_weight += weight
        if not title_weight:
            return 0.0
        return asked_weight / title_weight

    def _weigh(self, meaning: str) -> float:
        """Returns how much a meaning tells: the fewer texts have it, the more. A word that no
        text has may only be a way to ask, so it counts less than any rare one.
        """
        frequency = self._frequencies.get(meaning, 0)
        weight = math.log(1 + (len(self._indexed) + 1) / (frequency + 1))
        if not frequency or meaning in _read_words("faint"):
            return weight * WEIGHT_OF_FAINT_WORD
        return weight


def has_unspaced_script(text: str) -> bool:
    return _CHINESE.search(text) is not None


def begins_as_question(query: str) -> bool:
    """Tells whether the query asks something, and not only has a word such as "the" or "some"."""
    words = _WORD.findall(query.casefold())
    if "?" in query or "？" in query:
        return True
    if words and words[0] in _read_words("first_words_of_questions"):
        return True
    return any(word in query for word in _read_words("chinese_words_of_questions"))


def is_worded_as_question(query: str) -> bool:
    """Tells whether the query has words that only make a question or a sentence of it."""
    for word in _WORD.findall(query.casefold()):
        if _is_filler(word):
            return True
    return any(filler in query for filler in _read_words("chinese_fillers"))


def list_meanings(text: str) -> list[str]:
    """Returns what the text's words mean, without its fillers, in the text's order."""
    meanings: list[str] = []
    folded_text = text.casefold()
    for word in _WORD.findall(_CHINESE.sub(" ", folded_text)):
        stem = stem_of_word(word)
        if stem in _meaning_by_stem():
            meanings.append(_meaning_by_stem()[stem])
        elif not _is_filler(word):
            meanings.append(stem)
    for run in _CHINESE.findall(folded_text):
        meanings += _list_chinese_meanings(run)
    return meanings


def _list_chinese_meanings(run: str) -> list[str]:
    """Chinese has no blanks: each known word counts, and of the rest each pair of characters."""
    meanings: list[str] = []
    rest = run
    for word, meaning in _meaning_by_stem().items():
        if _CHINESE.fullmatch(word) and word in rest:
            meanings.append(meaning)
            rest = rest.replace(word, " ")
    for filler in _read_words("chinese_fillers"):
        rest = rest.replace(filler, " ")
    for part in rest.split():
        for position in range(len(part) - 1):
            meanings.append(part[position : position + 2])
    return meanings


def _is_filler(word: str) -> bool:
    return word in STOP_WORDS or word.replace("’", "'") in _read_words("fillers")


@cache
def _read_words(name: str) -> frozenset[str]:
    return frozenset(read_table("question_words")[name].split())


@cache
def _meaning_by_stem() -> Mapping[str, str]:
    meaning_by_stem: dict[str, str] = {}
    for meaning, words in read_table("question_words")["meanings"].items():
        for word in words.split():
            meaning_by_stem[stem_of_word(word)] = meaning
    return meaning_by_stem
