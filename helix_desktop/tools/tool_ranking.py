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
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_SATURATION, _LENGTH = 1.2, 0.5
_NAME_WEIGHT = 2
_MOST_LOOKED_AT = (
    40_000  # Occurrences to score, rarest words first, so that long questions stay fast.
)
# What every question says, besides the words without meaning.
_ASKING = frozenset(
    re.findall(r"\w+", "find get give help know like looking need other please tell want")
)


def distinguishing_stems(text: str) -> list[str]:
    plain = _WORD.findall(_JOINT.sub(" ", text).lower())
    return [stem_of_word(word) for word in plain if word not in STOP_WORDS and word not in _ASKING]


class TextRanking:
    """Ranks texts by how well they match a question. Built once for a set of texts; a
    query takes milliseconds.
    """

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """`texts`: pairs of a name and everything that is said about it."""
        found = [
            distinguishing_stems(name) * _NAME_WEIGHT + distinguishing_stems(said)
            for name, said in texts
        ]
        mean = max(1.0, sum(map(len, found)) / max(1, len(found)))
        places: dict[str, dict[int, int]] = defaultdict(dict)
        for number, each in enumerate(found):
            for word, count in Counter(each).items():
                places[word][number] = count
        lengths = [1 - _LENGTH + _LENGTH * len(each) / mean for each in found]
        self._texts = len(found)
        self._worth = {word: _weights_by_text(counts, lengths) for word, counts in places.items()}

    def find_best_texts(
        self, question: str, limit: int, fits: Callable[[int], bool] = lambda _: True
    ) -> Sequence[int]:
        scores, looked = [0.0] * self._texts, 0
        known = [
            self._worth[word] for word in distinguishing_stems(question) if word in self._worth
        ]
        for numbers, worth in sorted(known, key=lambda each: len(each[0])):
            if looked and looked + len(numbers) > _MOST_LOOKED_AT:
                break  # The remaining words occur in most texts, so they say little.
            looked += len(numbers)
            for number, more in zip(numbers, worth, strict=True):
                scores[number] += more
        return list(itertools.islice(filter(fits, _iterate_by_score(scores)), limit))


def _weights_by_text(
    counts: Mapping[int, int], lengths: Sequence[float]
) -> "tuple[array[int], array[float]]":
    """Return the texts that contain a word, and the score that the word adds to each."""
    weight = math.log(1 + (len(lengths) - len(counts) + 0.5) / (len(counts) + 0.5))
    worth = (
        weight * count * (_SATURATION + 1) / (count + _SATURATION * lengths[number])
        for number, count in counts.items()
    )
    return array("L", counts), array("d", worth)


def _iterate_by_score(scores: Sequence[float]) -> Iterator[int]:
    """Yield texts with a score above zero, best first, sorted only as far as they are read."""
    heap = [(-score, number) for number, score in enumerate(scores) if score]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[1]
