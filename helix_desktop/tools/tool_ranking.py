"""Finds a tool among thousands for a task, by words in names, descriptions and parameters.

Uses BM25 over stems, with a name's words counted twice. Names are split
(`create_issue`, `createIssue`), and words of any question ("can you please find me") do
not count. The constants were chosen on one half of MetaTool's questions;
`tests/benchmarks/finding.py` measures both halves and a second set.
"""

import heapq
import itertools
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from helix_desktop.engine.search_query import STOP_WORDS, stem_of_word

_WORD = re.compile(r"[^\W_]+")
_WORD_BOUNDARY_IN_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_SATURATION = 1.2
_LENGTH_INFLUENCE = 0.5
_NAME_WEIGHT = 2
# Occurrences to score, rarest words first, so that long questions stay fast.
_MOST_SCORED_OCCURRENCES = 40_000
# What every question says, besides the words without meaning.
_WORDS_OF_ANY_QUESTION = frozenset(
    re.findall(r"\w+", "find get give help know like looking need other please tell want")
)


def distinguishing_stems(text: str) -> list[str]:
    words = _WORD.findall(_WORD_BOUNDARY_IN_NAME.sub(" ", text).lower())
    return [
        stem_of_word(word)
        for word in words
        if word not in STOP_WORDS and word not in _WORDS_OF_ANY_QUESTION
    ]


class TextRanking:
    """Ranks texts by how well they match a question. Built once for a set of texts; a
    query takes milliseconds.
    """

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """`texts`: pairs of a name and everything that is said about it."""
        stems_of_texts = []
        for name, description in texts:
            stems = distinguishing_stems(name) * _NAME_WEIGHT + distinguishing_stems(description)
            stems_of_texts.append(stems)
        counts_by_stem: dict[str, dict[int, int]] = defaultdict(dict)
        for number, stems in enumerate(stems_of_texts):
            for stem, count in Counter(stems).items():
                counts_by_stem[stem][number] = count
        total_length = sum(map(len, stems_of_texts))
        mean_length = max(1.0, total_length / max(1, len(stems_of_texts)))
        lengths = [
            1 - _LENGTH_INFLUENCE + _LENGTH_INFLUENCE * len(stems) / mean_length
            for stems in stems_of_texts
        ]
        self._text_count = len(stems_of_texts)
        self._weights_by_stem = {
            stem: _weights_by_text(counts, lengths) for stem, counts in counts_by_stem.items()
        }

    def find_best_texts(
        self, question: str, limit: int, fits: Callable[[int], bool] = lambda _: True
    ) -> Sequence[int]:
        """Return the numbers of the texts that match best, best first, of those that fit."""
        known_stems = []
        for stem in distinguishing_stems(question):
            if stem in self._weights_by_stem:
                known_stems.append(self._weights_by_stem[stem])
        known_stems.sort(key=lambda weights: len(weights[0]))
        scores = [0.0] * self._text_count
        scored_occurrences = 0
        for numbers, weights in known_stems:
            if scored_occurrences and scored_occurrences + len(numbers) > _MOST_SCORED_OCCURRENCES:
                break  # The remaining words occur in most texts, so they say little.
            scored_occurrences += len(numbers)
            for number, weight in zip(numbers, weights, strict=True):
                scores[number] += weight
        return list(itertools.islice(filter(fits, _iterate_by_score(scores)), limit))


def _weights_by_text(
    counts: Mapping[int, int], lengths: Sequence[float]
) -> "tuple[array[int], array[float]]":
    """Return the texts that contain a word, and the score that the word adds to each."""
    rarity = math.log(1 + (len(lengths) - len(counts) + 0.5) / (len(counts) + 0.5))
    weights = array("d")
    for number, count in counts.items():
        weight = rarity * count * (_SATURATION + 1) / (count + _SATURATION * lengths[number])
        weights.append(weight)
    return array("L", counts), weights


def _iterate_by_score(scores: Sequence[float]) -> Iterator[int]:
    """Yield texts with a score above zero, best first, sorted only as far as they are read."""
    heap = [(-score, number) for number, score in enumerate(scores) if score]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[1]
