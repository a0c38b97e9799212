"""Scores how likely a summary's sentence states an order that nobody gave.

The score adds weights of the sentence's words, of how it states an order
(`resources/rule_words.json`), and of how much of it a user said. The weights in
`resources/order_weights.json` are fitted to sentences whose truth is known
(`tests/benchmarks/fit_order_weights.py`), as no rule by hand held for sentences that
nobody had read.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from helix_desktop.engine.agent_findings import split_sentences
from helix_desktop.engine.search_query import STOP_WORDS
from helix_desktop.engine.stated_rules_and_decisions import compile_rule_words, read_rule_words
from helix_desktop.resources import read_json_resource

STEM_LETTERS = 5  # Words that share this many first letters count as forms of one word.
SENTENCES_TOGETHER = 3  # An order is often given in several sentences.
_ENDINGS = ("", "s", "es", "ed", "ing")

_ATTRIBUTED, _ORDERED, _STATE = (
    compile_rule_words(kind, re.IGNORECASE) for kind in ("attributed", "ordered", "states")
)
_TERM = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
_LIGHT = STOP_WORDS.union(
    read_rule_words("light")
)  # Words that say little about what an order is about.
_SHORT_CODE = re.compile(r"(?!BE|DO|GO|IF|IN|IS|IT|NO|OF|ON|OR|TO|WE)[A-Z]{2}")
_DIGIT, _STYLE_TERM = re.compile(r"\d"), re.compile(r"[a-zßà-ÿ]+(?:'[a-z]+)?|#")
FIGURES_OF_WORDS = {
    word: str(at * step)
    for kind, step in (("ones", 1), ("tens", 10))
    for at, word in enumerate(read_rule_words(kind))
}


class SaidWords:
    """What users said and agreed to, reduced to the words of the sentences that are to
    be scored.
    """

    def __init__(
        self, said: Iterable[str], agreed: Iterable[str], sentences: Iterable[str]
    ) -> None:
        self.wanted = {stem for one in sentences for stem in stems_of(one)}
        messages, replies = self._read_sentences(said), self._read_sentences(agreed)
        counts = Counter(stem for message in messages for one in message for stem in one)
        most = math.log(sum(map(len, messages)) + 2) + 0.3
        self._weights = {stem: most - math.log(counts[stem] + 1) for stem in self.wanted}
        self._said, self._scores = counts.keys(), read_json_resource("order_weights.json")
        self._single = {one for message in (*messages, *replies) for one in message}
        self._together = _join_neighbours([*messages, *replies])

    def _read_sentences(self, texts: Iterable[str]) -> list[list[frozenset[str]]]:
        return [
            [frozenset(stems_of(one, every=True) & self.wanted) for one in split_sentences(text)]
            for text in texts
        ]

    def is_invented(self, sentence: str, known: set[str]) -> bool:
        """Whether it probably states an order that nobody gave. `known`: the stems in
        any source.
        """
        signs = self.signs_of_invention(sentence, known).items()
        return bool(
            sum(self._scores.get(sign, 0.0) * strength for sign, strength in signs)
            > self._scores["threshold"]
        )

    def signs_of_invention(self, sentence: str, known: set[str]) -> Mapping[str, float]:
        """Return what the score weighs: words, how an order is stated, and what a user
        said of it.
        """
        stems = stems_of(sentence)
        best = max(
            self._together, key=lambda one: self._weight_of(stems & one), default=frozenset()
        )
        signs = {
            "one sentence": self._said_share(stems, self._single),
            "sentences": self._said_share(stems, [best]),
        }
        signs["user"] = self._said_share(stems, [self._said])
        signs["any source"] = len(stems & known) / len(stems) if stems else 1.0
        states = bool(_STATE.search(sentence))
        signs |= {
            "length": len(stems),
            "attributed": bool(_ATTRIBUTED.search(sentence)),
            "state": states,
        }
        signs |= {"ordered": bool(_ORDERED.search(sentence)) and not states}
        signs |= {"within": sentence[:1].islower(), "end": sentence.endswith(".")}
        words = [
            (min(stems_of(one, every=True)), len(one))
            for one in _TERM.findall(sentence)
            if not is_light_word(one)
        ]
        for place, those in (
            ("window", best),
            ("user", self._said),
            ("source", known),
            ("nowhere", self.wanted),
        ):
            lengths = [length for stem, length in words if stem in those]
            words = [one for one in words if one[0] not in those]
            signs |= {f"words {place}": len(lengths), f"longest {place}": max(lengths, default=0)}
        return signs | dict.fromkeys(_style_of(sentence), 1.0)

    def _weight_of(self, stems: Iterable[str]) -> float:
        return sum(map(self._weights.__getitem__, stems))

    def _said_share(self, stems: set[str], said: Iterable[Collection[str]]) -> float:
        """Return how much of it the best of what was said contains. Rare words count more."""
        whole = self._weight_of(stems)
        best = max((self._weight_of(stems.intersection(one)) for one in said), default=0.0)
        return best / whole if whole else 1.0


def _join_neighbours(messages: list[list[frozenset[str]]]) -> Iterable[frozenset[str]]:
    whole = (
        frozenset().union(*one[at : at + SENTENCES_TOGETHER])
        for one in messages
        for at in range(len(one))
    )
    return dict.fromkeys(whole)  # In order, so that of equal ones the first is the best.


def stems_in_pieces(wanted: Collection[str], pieces: Iterable[str]) -> set[str]:
    """Return which of the stems occur."""
    beginnings = {
        (stem + ending)[:STEM_LETTERS]: stem
        for stem in sorted(wanted, key=len)
        for ending in _ENDINGS
    }
    found = set[str]()
    for piece in pieces:
        found.update(
            beginnings.keys() & {term[:STEM_LETTERS] for term in _TERM.findall(piece.casefold())}
        )
    return {beginnings[one] for one in found}


def stems_of(text: str, *, every: bool = False) -> set[str]:
    """Return the beginnings of its words, of common ones only if all are wanted, and
    its numbers.
    """
    terms = _TERM.findall(text)
    if not every:
        terms = [one for one in terms if not is_light_word(one) or _SHORT_CODE.fullmatch(one)]
    return {FIGURES_OF_WORDS.get(one) or _stem_of_word(one) for one in map(str.casefold, terms)}


def is_light_word(word: str) -> bool:
    return word.casefold() in _LIGHT or (len(word) < 3 and not word[-1].isdigit())


def _stem_of_word(word: str) -> str:
    return word if word[0].isdigit() else re.sub(r"(?:ing|ed|e?s)$", "", word)[:STEM_LETTERS]


def _style_of(sentence: str) -> set[str]:
    """Return its words, with common ones, its pairs of words, and those with one word
    between them.
    """
    terms = _STYLE_TERM.findall(_DIGIT.sub("#", sentence.lower()))
    words = [_stem_of_word(one) if len(one) > 4 else one for one in terms]
    bounded = ["^", *words, "$"]
    apart = map(" _ ".join, zip(bounded, bounded[2:], strict=False))
    return {*words, *map(" ".join, zip(["^", *words], [*words, "$"], strict=True)), *apart}
