"""The passages of a text that hold some words: the lines as they are, where they stand, and where else to look.

What comes back from a recall is carried on every step that follows, so a passage is shorter than a page. A passage is chosen
by the words that are rare in the text, and a word that is not there does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from helix_desktop.engine.ports import Tokens

TOKENS = 500  # of all passages that come back together
AROUND = 10  # lines before and after a hit
MOST_WORDS, MOST_HITS, OTHERS = 16, 2_000, 12
LINE = 1_000  # characters: of a longer line only what is around the word is shown
_WORD = re.compile(r"[\w./-]*\w")

Span = tuple[int, int]  # first and last line, from 1


def find(tokens: Tokens, lines: Sequence[str], words: str, limit: int = TOKENS) -> str:
    """The best passages in the order of the text, each with a word that no better one has. All of the text where that is not
    longer; empty where no word is in it.
    """
    hits = _hits(lines, words)
    if not hits:
        return ""
    if sum(map(len, lines)) <= limit * 8 and tokens.count("\n".join(lines)) <= limit:
        return "\n".join(lines)
    chosen: list[Span] = []
    seen: set[str] = set()
    for hit in _best_first(hits):
        if seen.issuperset(hits[hit]) or any(first <= hit <= last for first, last in chosen):
            continue
        span = _fitting(tokens, lines, hit, chosen, limit)
        if span is None:
            break
        chosen.append(span)
        seen |= _near(hits, *span).keys()
        limit -= tokens.count("\n".join(_shown(lines, span, hits)))
    shown = "\n".join(_said(lines, span, hits) for span in sorted(chosen))
    return f"{shown}\n{_others(hits, chosen)}"


def _hits(lines: Sequence[str], words: str) -> Mapping[int, Mapping[str, float]]:
    """The lines that hold a word, with these words and how rare each is."""
    wanted = list(dict.fromkeys(word.casefold() for word in _WORD.findall(words)))[:MOST_WORDS]
    folded = [line.casefold() for line in lines]
    by_line: dict[int, dict[str, float]] = {}
    for word in wanted:
        at = [number for number, line in enumerate(folded, 1) if word in line]
        for number in at[:MOST_HITS]:
            by_line.setdefault(number, {})[word] = 1 / len(at)
    return by_line


def _best_first(hits: Mapping[int, Mapping[str, float]]) -> list[int]:
    def worth(number: int) -> float:
        near = _near(hits, number - AROUND, number + AROUND)
        return sum(near.values()) + sum(hits[number].values())  # the line itself counts twice

    return sorted(hits, key=lambda number: (-worth(number), number))


def _near(hits: Mapping[int, Mapping[str, float]], first: int, last: int) -> dict[str, float]:
    """The words of some lines, each once."""
    near: dict[str, float] = {}
    for number in range(first, last + 1):
        near |= hits.get(number, {})
    return near


def _fitting(tokens: Tokens, lines: Sequence[str], hit: int, chosen: Iterable[Span], limit: int) -> Span | None:
    """As many lines around a hit as there is room for, and not those that were chosen before; None: no room. The best
    hit is shown in any case.
    """
    before = max((last for _, last in chosen if last < hit), default=0)
    after = min((first for first, _ in chosen if first > hit), default=len(lines) + 1)
    for around in (AROUND, AROUND // 2, AROUND // 4, 0):
        span = max(before + 1, hit - around), min(after - 1, hit + around)
        if tokens.count("\n".join(_shown(lines, span, {}))) <= limit:
            return span
    return None if chosen else (hit, hit)


def _shown(lines: Sequence[str], span: Span, hits: Mapping[int, Mapping[str, float]]) -> list[str]:
    return [_short(lines[number - 1], hits.get(number, {})) for number in range(span[0], span[1] + 1)]


def _short(line: str, words: Iterable[str]) -> str:
    """A line as it is; of a very long one what is around a word, and where that stands."""
    if len(line) <= LINE:
        return line
    at = max(0, min((line.casefold().find(word) for word in words), default=0) - LINE // 2)
    return f"[characters {at + 1:,}-{at + LINE:,} of {len(line):,}] {line[at : at + LINE]}"


def _said(lines: Sequence[str], span: Span, hits: Mapping[int, Mapping[str, float]]) -> str:
    return "\n".join((f"[lines {span[0]}-{span[1]} of {len(lines):,}]", *_shown(lines, span, hits)))


def _others(hits: Iterable[int], chosen: Sequence[Span]) -> str:
    """How to go on: where else the words stand, and the lines asked for as `lines`."""
    rest = [number for number in sorted(hits) if not any(first <= number <= last for first, last in chosen)]
    more = f", … {len(rest) - OTHERS} more" if len(rest) > OTHERS else ""
    also = f"also in lines {', '.join(map(str, rest[:OTHERS]))}{more}; " if rest else ""
    return f'[{also}go on with lines="{max(last for _, last in chosen) + 1}-"]'
