"""Finds passages of a text with certain words, and says where else the words are.

A recalled passage is sent again with every later step, so it is shorter than a page.
Passages are chosen by the words that are rare in the text; a word that does not occur
changes nothing. No line is shown twice, even if a file was read five times.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from helix_desktop.engine.ports import TokenCounter

# The most tokens of one result's passages, as every later step sends them again.
PASSAGES_TOKENS = 500
MOST_LINES_AROUND = 10  # More lines around a hit would take the room of other passages.
# Other searched words up to this many lines away raise a hit's rank, by this factor
# less for each line.
NEARBY_LINES = 5
NEARBY_WORTH = 0.8
# The gain for a word that follows its predecessor in the query within this many characters.
FOLLOWING_WORTH = 0.8
FOLLOWING_WITHIN = 8
# Further hits are only listed with their lines.
MOST_IN_ONE_TEXT = 2
MOST_IN_ALL_TEXTS = 4
WORTH_SHOWING = 0.4  # Hits that rank below this share of the best one are only listed, too.
SHOWN_WORTH = 0.5  # The weight of words that a better passage shows: the others may be elsewhere.
IN_VIEW_WORTH = 0.4  # The weight of lines that the view shows: nobody has to search for them.
MOST_WORDS = 16
MOST_HITS = 2_000
MOST_OTHER_HITS = 12
LONGEST_LINE = 1_000  # A line with more characters is cut to the part around the match.
_WORD = re.compile(r"[\w./-]+")

LineSpan = tuple[int, int]  # Numbers of the first and the last line; lines are counted from 1.
# By line number: the searched words in the line, and how rare each is.
Hits = Mapping[int, Mapping[str, float]]


def find_passages(
    tokens: TokenCounter, lines: Sequence[str], words: str, limit: int = PASSAGES_TOKENS
) -> str:
    """Return the best passages in order, or all of a short text, or nothing."""
    hits = _lines_with_words(lines, words)
    if not hits:
        return ""
    if sum(map(len, lines)) <= limit * 8 and tokens.count_tokens("\n".join(lines)) <= limit:
        return "\n".join(lines)
    spans = _choose_passages(
        tokens, lines, hits, lambda _: (1, len(lines)), limit, MOST_IN_ONE_TEXT
    )
    shown = "\n".join(
        _passage_with_name(f"[lines {span[0]}-{span[1]} of {len(lines):,}]", lines, span, hits)
        for span in spans
    )
    return f"{shown}\n{_describe_other_hits(hits, spans)}"


def find_passages_in_texts(
    tokens: TokenCounter,
    texts: Sequence[tuple[str, Sequence[str]]],
    words: str,
    limit: int = PASSAGES_TOKENS,
    in_view: Collection[str] = (),
) -> str:
    """Return the best passages of several texts with the texts' names. The first text wins ties.

    Lines that are `in_view` count less, without the blanks around them.
    """
    lines = [line for _, text in texts for line in text]
    ends = list(accumulate(len(text) for _, text in texts))
    hits = {
        at: {
            word: rare * (IN_VIEW_WORTH if lines[at - 1].strip() in in_view else 1)
            for word, rare in found.items()
        }
        for at, found in _lines_with_words(lines, words).items()
    }

    def text_of(number: int) -> tuple[str, int, int]:
        at = bisect_left(ends, number)
        name, text = texts[at]
        return name, ends[at] - len(text) + 1, ends[at]

    found = []
    for span in _choose_passages(
        tokens, lines, hits, lambda hit: text_of(hit)[1:], limit, MOST_IN_ALL_TEXTS
    ):
        name, begin, end = text_of(span[0])
        first, last, whole = (number - begin + 1 for number in (*span, end))
        found.append(
            _passage_with_name(f"[lines {first}-{last} of {whole:,} of {name}]", lines, span, hits)
        )
    return "\n".join(found)


def _choose_passages(
    tokens: TokenCounter,
    lines: Sequence[str],
    hits: Hits,
    text_of: Callable[[int], LineSpan],
    limit: int,
    most: int,
) -> list[LineSpan]:
    """Return up to `most` passages that fit, each around a line that no better passage shows."""
    chosen: list[LineSpan] = []
    shown: set[str] = set()
    known: set[str] = set()
    worths = _words_worth_showing(hits)
    while len(chosen) < most:
        spans = [range(first, last + 1) for first, last in chosen]
        ranked = (at for at in _rank_hits(worths, known) if not any(at in span for span in spans))
        hit = next((at for at in ranked if lines[at - 1].strip() not in shown), None)
        if hit is None:
            break
        span = _fit_passage(tokens, lines, hit, chosen, text_of(hit), limit)
        if span is None:
            break
        chosen.append(span)
        shown.update(line.strip() for line in lines[span[0] - 1 : span[1]])
        known.update(word for at in range(span[0], span[1] + 1) for word in hits.get(at, ()))
        limit -= tokens.count_tokens("\n".join(_passage_lines(lines, span, hits)))
    return sorted(chosen)


def _lines_with_words(lines: Sequence[str], words: str) -> Hits:
    found = (word.rstrip("./-").casefold() for word in _WORD.findall(words))
    wanted = list(dict.fromkeys(filter(None, found)))[:MOST_WORDS]
    folded = [line.casefold() for line in lines]
    by_line: dict[int, dict[str, float]] = {}
    for word in wanted:
        at = [number for number, line in enumerate(folded, 1) if word in line]
        for number in at[:MOST_HITS]:
            by_line.setdefault(number, {})[word] = math.log(1 + len(lines) / len(at))
    for one, two in pairwise(wanted):
        for number, rarity in by_line.items():
            line = folded[number - 1]
            end = line.find(one) + len(one)
            following = line[end : end + FOLLOWING_WITHIN + len(two)]
            if one in rarity and two in rarity and two in following:
                rarity[f"{one} {two}"] = FOLLOWING_WORTH * min(rarity[one], rarity[two])
    return by_line


def _words_worth_showing(hits: Hits) -> Hits:
    """Return the lines worth showing, with the words in and near each of them."""
    worths: dict[int, Mapping[str, float]] = {}
    for number, words in hits.items():
        best = dict(words)
        for away in range(1, NEARBY_LINES + 1):
            for word, rare in (
                *hits.get(number - away, {}).items(),
                *hits.get(number + away, {}).items(),
            ):
                best[word] = max(best.get(word, 0), rare * NEARBY_WORTH / (1 + away / 2))
        worths[number] = best
    sums = {number: sum(best.values()) for number, best in worths.items()}
    least = WORTH_SHOWING * max(sums.values(), default=0)
    return {number: best for number, best in worths.items() if sums[number] >= least}


def _rank_hits(worths: Hits, known: Collection[str]) -> list[int]:
    """Return the lines, best first. Words that are known from a chosen passage count less."""

    def worth(number: int) -> float:
        return sum(
            rare * (SHOWN_WORTH if word in known else 1) for word, rare in worths[number].items()
        )

    return sorted(worths, key=lambda number: (-worth(number), number))


def _fit_passage(
    tokens: TokenCounter,
    lines: Sequence[str],
    hit: int,
    chosen: Sequence[LineSpan],
    within: LineSpan,
    limit: int,
) -> LineSpan | None:
    """Return as many lines around a hit as there is room for. The best hit is always shown."""
    first = max([within[0], *(last + 1 for _, last in chosen if last < hit)])
    last = min([within[1], *(first - 1 for first, _ in chosen if first > hit)])
    for around in (MOST_LINES_AROUND, MOST_LINES_AROUND // 2, MOST_LINES_AROUND // 4, 0):
        span = max(first, hit - around), min(last, hit + around)
        if tokens.count_tokens("\n".join(_passage_lines(lines, span, {}))) <= limit:
            return span
    return None if chosen else (hit, hit)


def _passage_lines(lines: Sequence[str], span: LineSpan, hits: Hits) -> list[str]:
    return [
        _shorten_line(lines[number - 1], hits.get(number, {}))
        for number in range(span[0], span[1] + 1)
    ]


def _shorten_line(line: str, words: Iterable[str]) -> str:
    """Return a line, or the part of a very long line around a word, with its position."""
    if len(line) <= LONGEST_LINE:
        return line
    found = (line.casefold().find(word) for word in words)
    at = max(0, min((at for at in found if at >= 0), default=0) - LONGEST_LINE // 2)
    return f"[characters {at + 1:,}-{at + LONGEST_LINE:,} of {len(line):,}] {line[at : at + LONGEST_LINE]}"


def _passage_with_name(name: str, lines: Sequence[str], span: LineSpan, hits: Hits) -> str:
    return "\n".join((name, *_passage_lines(lines, span, hits)))


def _describe_other_hits(hits: Iterable[int], chosen: Sequence[LineSpan]) -> str:
    """Say where else the words are, and how to ask for these lines."""
    rest = [
        number
        for number in sorted(hits)
        if not any(first <= number <= last for first, last in chosen)
    ]
    more = f", … {len(rest) - MOST_OTHER_HITS} more" if len(rest) > MOST_OTHER_HITS else ""
    also = f"also in lines {', '.join(map(str, rest[:MOST_OTHER_HITS]))}{more}; " if rest else ""
    return f'[{also}go on with lines="{max(last for _, last in chosen) + 1}-"]'
