"""Finds a tool among thousands for a task, by words in names, descriptions and parameters.

Uses BM25 over stems, with a name's words counted twice. Names are split (`create_issue`, `createIssue`),
and words of any question ("can you please find me") do not count. The constants were chosen on one half
of MetaTool's questions; `tests/benchmarks/finding.py` measures both halves and a second set.
"""

import heapq
import itertools
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_SATURATION, _LENGTH = 1.2, 0.5
_NAME_WEIGHT = 2
_MOST_LOOKED_AT = 40_000  # Occurrences to score, rarest words first, so that long questions stay fast.
_SUFFIXES = (
    ("ational", "ate"), ("ization", "ize"), ("isation", "ize"), ("ations", "ate"), ("ation", "ate"), ("ements", "e"),
    ("ement", "e"), ("ments", ""), ("ment", ""), ("ingly", ""), ("edly", ""), ("ings", ""), ("ing", ""), ("ies", "y"),
    ("ied", "y"), ("ers", ""), ("ors", ""), ("er", ""), ("or", ""), ("ed", ""), ("ly", ""), ("es", ""), ("s", ""), ("e", ""),
)  # fmt: skip
_SAID_IN_EVERY_QUESTION = (
    "a an the i me my we our you your he she it its they them their this that these those is are was were be been being "
    "am do does did doing have has had having can could would should will shall may might must of at by for with about "
    "to from in on into out up down over under and or but if because as until while so than too very not no nor only "
    "own same s t just don now what which who whom how when where why there here all any both each few more most other "
    "some such please help want need like looking know tell get give find"
)
_COMMON = frozenset(_SAID_IN_EVERY_QUESTION.split())


def distinguishing_stems(text: str) -> list[str]:
    plain = _WORD.findall(_JOINT.sub(" ", text).lower())
    return [stem_word(word) for word in plain if word not in _COMMON]


@lru_cache(maxsize=1 << 15)  # Cached, because the same few thousand words occur in all descriptions.
def stem_word(word: str) -> str:
    """Cut a word to its stem: `convert`, `converts`, `converting` become one, `conversion` another."""
    if len(word) <= 4:
        return word[:-1] if len(word) == 4 and word.endswith("s") and not word.endswith("ss") else word
    for suffix, instead in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: len(word) - len(suffix)] + instead
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls" else word


class TextRanking:
    """Ranks texts by how well they match a question. Built once for a set of texts; a query takes milliseconds."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """`texts`: pairs of a name and everything that is said about it."""
        found = [distinguishing_stems(name) * _NAME_WEIGHT + distinguishing_stems(said) for name, said in texts]
        mean = max(1.0, sum(map(len, found)) / max(1, len(found)))
        places: dict[str, dict[int, int]] = defaultdict(dict)
        for number, each in enumerate(found):
            for word, count in Counter(each).items():
                places[word][number] = count
        lengths = [1 - _LENGTH + _LENGTH * len(each) / mean for each in found]
        self._texts = len(found)
        self._worth = {word: _weights_by_text(counts, lengths) for word, counts in places.items()}

    def find_best_texts(self, question: str, limit: int, fits: Callable[[int], bool] = lambda _: True) -> Sequence[int]:
        scores, looked = [0.0] * self._texts, 0
        known = [self._worth[word] for word in distinguishing_stems(question) if word in self._worth]
        for numbers, worth in sorted(known, key=lambda each: len(each[0])):
            if looked and looked + len(numbers) > _MOST_LOOKED_AT:
                break  # The remaining words occur in most texts, so they say little.
            looked += len(numbers)
            for number, more in zip(numbers, worth, strict=True):
                scores[number] += more
        return list(itertools.islice(filter(fits, _iterate_by_score(scores)), limit))


def _weights_by_text(counts: Mapping[int, int], lengths: Sequence[float]) -> "tuple[array[int], array[float]]":
    """Return the texts that contain a word, and the score that the word adds to each."""
    weight = math.log(1 + (len(lengths) - len(counts) + 0.5) / (len(counts) + 0.5))
    worth = (
        weight * count * (_SATURATION + 1) / (count + _SATURATION * lengths[number]) for number, count in counts.items()
    )
    return array("L", counts), array("d", worth)


def _iterate_by_score(scores: Sequence[float]) -> Iterator[int]:
    """Yield texts with a score above zero, best first, sorted only as far as they are read."""
    heap = [(-score, number) for number, score in enumerate(scores) if score]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[1]
