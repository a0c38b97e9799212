"""Finds a tool among thousands for a task, by words in names, descriptions and parameters.

Uses BM25 over stems, with a name's words counted twice. Names are split
(`create_issue`, `createIssue`), and words of any question ("can you please find me") do
not count. The constants were chosen on one half of MetaTool's questions;
`tests/benchmarks/finding.py` measures both halves and a second set.
"""

import heapq
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
    """Return the words that tell one text from another, without their endings and in order."""
    text_with_split_names = _WORD_BOUNDARY_IN_NAME.sub(" ", text)
    stems: list[str] = []
    for word in _WORD.findall(text_with_split_names.lower()):
        if word not in STOP_WORDS and word not in _WORDS_OF_ANY_QUESTION:
            stems.append(stem_of_word(word))
    return stems


class TextRanking:
    """Ranks texts by how well they match a question. Built once for a set of texts; a
    query takes milliseconds.
    """

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """`texts`: pairs of a name and everything that is said about it.

        For each stem (a word without its ending) it is computed beforehand which texts have it, and
        how much it adds to the score of each.
        """
        stems_of_texts: list[list[str]] = []
        for name, description in texts:
            stems = distinguishing_stems(name) * _NAME_WEIGHT
            stems += distinguishing_stems(description)
            stems_of_texts.append(stems)

        # By stem: how often each text has it.
        counts_by_stem: dict[str, dict[int, int]] = defaultdict(dict)
        total_length = 0
        for number, stems in enumerate(stems_of_texts):
            total_length += len(stems)
            for stem, count in Counter(stems).items():
                counts_by_stem[stem][number] = count

        mean_length = max(1.0, total_length / max(1, len(stems_of_texts)))
        relative_lengths: list[float] = []
        for stems in stems_of_texts:
            relative_length = 1 - _LENGTH_INFLUENCE + _LENGTH_INFLUENCE * len(stems) / mean_length
            relative_lengths.append(relative_length)
        self._text_count = len(stems_of_texts)
        self._weights_by_stem = {
            stem: _weights_by_text(counts, relative_lengths)
            for stem, counts in counts_by_stem.items()
        }

    def find_best_texts(
        self, question: str, limit: int, fits: Callable[[int], bool] = lambda _: True
    ) -> Sequence[int]:
        """Return the numbers of the texts that match best, best first, of those that fit."""
        occurrences_of_stems = []
        for stem in distinguishing_stems(question):
            if stem in self._weights_by_stem:
                occurrences_of_stems.append(self._weights_by_stem[stem])
        # The rarest words come first.
        occurrences_of_stems.sort(key=lambda numbers_and_weights: len(numbers_and_weights[0]))
        scores = [0.0] * self._text_count
        scored_occurrences = 0
        for numbers, weights in occurrences_of_stems:
            if scored_occurrences and scored_occurrences + len(numbers) > _MOST_SCORED_OCCURRENCES:
                break  # The remaining words occur in most texts, so they say little.
            scored_occurrences += len(numbers)
            for number, weight in zip(numbers, weights, strict=True):
                scores[number] += weight

        best_texts: list[int] = []
        for number in _iterate_by_score(scores):
            if len(best_texts) >= limit:
                break
            if fits(number):
                best_texts.append(number)
        return best_texts


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
