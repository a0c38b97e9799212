"""Ranks the places that a search found, best answers first.

A place's rank depends on how many of the words it has, especially rare ones, on whether
they are in one line and in the query's order, and on what is near it. The constants were
chosen on one half of recorded sessions and of LoCoMo (`tests/benchmarks/searching.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import RECALLS, ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import search_words

# The weight of neighbouring facts that were found, too. The answer counts most.
NEAR = {-2: 0.1, -1: 0.2, 1: 0.8, 2: 0.1}
# Other matches in a conversation raise a match's rank by this weight, up to this many of them.
COMPANION_WEIGHT, MOST_COMPANIONS = 0.3, 8
FITTING = 2.0  # The gain for a message in the conversation that fits the words best as a whole.
LINE, LINES = 500, 60  # Characters read on each side of a word in a line, and lines read of a text.
BY_FREQUENCY = (
    0.6  # The exponent of the rank by frequency. Below 1, as that rank favours short texts.
)
IN_LINE = 10.0  # The gain if one line has all words. If it has half of them, a quarter of the gain.
IN_PAIRS = 3.0  # The gain for all words that follow each other as in the query, in any lines.
NEXT_LINE, BEST_LINES = 0.25, 3  # The weight of the next best line, and how many lines count.
TINY = 25  # An entry with no more characters than this gets half the rank: it shows little.
KNOWN, REORDERED = 0.6, 15  # The loss for lines that an earlier result has, in the first so many.
AS_WRITTEN = 1.0  # The gain for an entry with its words in upper and lower case as in the query.
FOLLOWING, BESIDE = (
    0.7,
    8,
)  # The gain for a word that follows its predecessor within this many characters.
# If a place, other than a list of details, has every word, those with less than this
# share are no results.
LEAST_SHARE = 0.5
OLDER = 0.8  # The weight of an older output of a call whose newer output has as many of the words.
COPY, HISTORY, LIST_OF_DETAILS = 0.3, 0.5, 0.1  # The weight of copies and lists of other content.
HANDOVER = (
    "handover"  # The tool that `engine/fold_document_writer.py` names for its lists of details.
)
# The tool that `workbench/session_import.py` names for lines of a history that are no
# messages.
NOTES = "import"
BY_SHARE = 1.5  # The exponent of the share of the words that a place has.
Stems = Mapping[str, re.Pattern[str]]
# Lines and weights, the best first; the weight of pairs of words; where the best line's rarest is.
MatchingLines = tuple[Mapping[str, float], float, int]
_COPIES = tuple(RECALLS - {ToolName.RECALL_HISTORY})


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A fact, or a piece of an entry. `hit`: where its text begins. `words`: those
    found by the index.
    """

    hit: SearchHit
    text: str
    number: int  # The entry's number; 0 for a fact.
    worth: float
    words: Sequence[str]
    time: float = 0.0  # The fact's time. Its copy in a fork has the same one.


def rank_places(places: Sequence[FoundPlace], words: Mapping[str, float]) -> list[SearchHit]:
    """Return the best place of each entry and fact, in order. `words` have weights."""
    places = _without_copies_in_forks(places)
    stems = {stem_of_word(word): search_words.pattern_of_word(word) for word in words}
    folded = [place.text.casefold() for place in places]
    held = [_stems_of_place(place, text, stems) for place, text in zip(places, folded, strict=True)]
    counts = Counter(stem for each in held for stem in each)
    rarity = {stem: math.log(1 + len(places) / (counts[stem] + 0.5)) for stem in stems}
    whole = sum(rarity.values())
    shares = [sum(map(rarity.__getitem__, each)) / whole for each in held]
    with_all = (place for place, each in zip(places, held, strict=True) if len(each) == len(stems))
    least = (
        LEAST_SHARE if any(_worth_of_origin(place) > LIST_OF_DETAILS for place in with_all) else 0.0
    )
    # Entries with less are no results. Facts with less raise the ranks of facts beside them.
    needed = [
        share >= least or not place.number for place, share in zip(places, shares, strict=True)
    ]
    found = [{stem: stems[stem] for stem in each if needed[at]} for at, each in enumerate(held)]
    lines = [
        _find_matching_lines(text, each, rarity) for text, each in zip(folded, found, strict=True)
    ]
    older = _find_older_outputs(places, shares)
    first = next(iter(stems))
    starts = [at if at >= 0 else max(0, folded[n].find(first)) for n, (*_, at) in enumerate(lines)]
    copies = _find_copied_pages(places, folded, starts)
    mean = sum(map(len, folded)) / max(1, len(folded))
    weights = [
        place.worth
        * _rank_by_frequency(folded[at], found[at], words, mean) ** BY_FREQUENCY
        * share**BY_SHARE
        * _gain_by_lines(lines[at], whole)
        * (len(folded[at]) / (len(folded[at]) + TINY) if place.number else 1)
        * (1 + AS_WRITTEN * _share_as_written(place.text, found[at], words) if place.number else 1)
        * (OLDER if at in older else 1)
        * (HISTORY if at in copies else _worth_of_origin(place))
        for at, (place, share) in enumerate(zip(places, shares, strict=True))
    ]
    fits = _fit_of_conversations(places, held)
    near = _add_what_is_near(places, weights)
    ranks = [near[at] * fits.get(place.hit.conversation, 1.0) for at, place in enumerate(places)]
    order = sorted(
        (at for at, share in enumerate(shares) if share >= least),
        key=ranks.__getitem__,
        reverse=True,
    )
    best: dict[tuple[Digest | None, str, int], int] = {}
    for at in order:
        hit = places[at].hit
        best.setdefault((hit.digest, hit.conversation, hit.seq), at)
    exact = [len(text) == len(place.text) for place, text in zip(places, folded, strict=True)]
    new_first = _put_new_lines_first([*best.values()], ranks, [weights for weights, *_ in lines])
    hits = {
        at: show_line(places[at], words, lines[at][-1] if exact[at] else -1) for at in new_first
    }
    return [replace(hit, has_all_words=len(held[at]) == len(stems)) for at, hit in hits.items()]


def _put_new_lines_first(
    order: Sequence[int], ranks: Sequence[float], lines: Sequence[Mapping[str, float]]
) -> Iterator[int]:
    """Yield the places. Lines that an earlier place has count less."""
    left, known = [*order[:REORDERED]], set[str]()

    def rank_by_new_lines(at: int) -> float:
        squares = {line: weight * weight for line, weight in lines[at].items()}
        shown = sum(squares[line] for line in squares.keys() & known)
        return ranks[at] * (1 - KNOWN * shown / (sum(squares.values()) or 1))

    while left:
        best = max(left, key=rank_by_new_lines)
        left.remove(best)
        known.update(lines[best])
        yield best
    yield from order[REORDERED:]


def _without_copies_in_forks(places: Sequence[FoundPlace]) -> list[FoundPlace]:
    """Keep only the oldest conversation's copy of a message in forks. IDs sort by time."""
    newest_first = sorted(places, key=lambda place: place.hit.conversation, reverse=True)
    oldest = {(place.time, place.hit.seq): place.hit.conversation for place in newest_first}
    return [
        place
        for place in places
        if place.number or oldest[place.time, place.hit.seq] == place.hit.conversation
    ]


def _stems_of_place(place: FoundPlace, text: str, stems: Stems) -> list[str]:
    known = set(map(stem_of_word, place.words))
    call = f"{place.hit.about.tool} {place.hit.about.source}".casefold()
    return [
        stem
        for stem, pattern in stems.items()
        if stem in known or stem in call or pattern.search(text)
    ]


def _rank_by_frequency(text: str, stems: Stems, words: Mapping[str, float], mean: float) -> float:
    """Return BM25, with less weight for length. A whole word counts twice: also as a stem."""
    length = 1.2 * (0.6 + 0.4 * len(text) / mean) if mean else 1.2
    stem_weights = {stem_of_word(word): weight for word, weight in words.items()}
    counts = [
        (weight, len(stems[stem].findall(text)) or 1)
        for stem, weight in stem_weights.items()
        if stem in stems
    ]
    whole_words = ((word.casefold(), weight) for word, weight in words.items())
    counts += [
        (weight, text.count(word)) for word, weight in whole_words if word not in stem_weights
    ]
    return sum(weight * count / (count + length) for weight, count in counts)


def _share_as_written(text: str, stems: Stems, words: Mapping[str, float]) -> float:
    """Return the share of the text's words that it has in upper and lower case as in the query."""
    there = {
        re.escape(word): weight for word, weight in words.items() if stem_of_word(word) in stems
    }
    same = (
        weight for word, weight in there.items() if re.search(rf"{word}(?<!\w{word})(?!\w)", text)
    )
    return sum(same) / (sum(there.values()) or 1)


def _find_matching_lines(text: str, stems: Stems, rarity: Mapping[str, float]) -> MatchingLines:
    """Find the lines with any of several words. Words that follow each other weigh more."""
    found: dict[str, tuple[float, int]] = {}
    pairs: dict[tuple[str, str], float] = {}
    left = (1 + FOLLOWING) * sum(map(rarity.__getitem__, stems))
    for rare in sorted(stems, key=rarity.__getitem__, reverse=True) if len(stems) > 1 else ():
        if sum(weight > left for weight, _ in found.values()) >= BEST_LINES:
            break  # Lines with the other words alone cannot be among the best.
        left -= (1 + FOLLOWING) * rarity[rare]
        match = stems[rare].search(text)
        for _ in range(LINES):
            if match is None:
                break
            at = match.start()
            begin, end = text.rfind("\n", max(0, at - LINE), at) + 1, text.find("\n", at, at + LINE)
            line = text[begin or max(0, at - LINE) : end if end >= 0 else at + LINE].strip()
            if line not in found:
                first = {stem: pattern.search(line) for stem, pattern in stems.items()}
                there = {stem: it.end() for stem, it in first.items() if it}
                beside = {
                    (one, two): min(rarity[one], rarity[two])
                    for one, two in pairwise(there)
                    if (it := stems[two].search(line, there[one]))
                    and it.start() - there[one] <= BESIDE
                }
                pairs |= beside
                found[line] = (
                    sum(map(rarity.__getitem__, there)) + FOLLOWING * sum(beside.values()),
                    at,
                )
            match = stems[rare].search(text, end if end >= 0 else at + LINE)
    best_first = sorted(found.items(), key=lambda item: item[1][0], reverse=True)
    weights = {line: weight for line, (weight, _) in best_first}
    return weights, sum(pairs.values()), best_first[0][1][1] if best_first else -1


def _gain_by_lines(found: MatchingLines, whole: float) -> float:
    weights, pairs, _ = found
    best = enumerate(islice(weights.values(), BEST_LINES))
    lines = sum(NEXT_LINE**n * (weight / whole) ** 2 for n, weight in best)
    return 1 + IN_LINE * lines + IN_PAIRS * pairs / whole


def _find_older_outputs(places: Sequence[FoundPlace], shares: Sequence[float]) -> set[int]:
    """Return outputs with a newer output of the same call that has as many words: old
    files, old test runs.
    """
    same: dict[EntryOrigin, list[int]] = {}
    for at, place in enumerate(places):
        if place.number and place.hit.about.source:
            same.setdefault(place.hit.about, []).append(at)
    return {
        one
        for each in same.values()
        for one in each
        if any(
            places[two].number > places[one].number and shares[two] >= shares[one] for two in each
        )
    }


def _worth_of_origin(place: FoundPlace) -> float:
    tool = place.hit.about.tool
    return LIST_OF_DETAILS if tool in (HANDOVER, NOTES) else COPY if tool.endswith(_COPIES) else 1.0


def _find_copied_pages(
    places: Sequence[FoundPlace], folded: Sequence[str], starts: Sequence[int]
) -> set[int]:
    """Return pages of the history whose best line is also in an output. Messages are
    only in such pages.
    """
    pages = {
        at
        for at, place in enumerate(places)
        if place.hit.about.tool.endswith(ToolName.RECALL_HISTORY)
    }
    outputs = {
        at for at, place in enumerate(places) if place.number and _worth_of_origin(place) == 1.0
    } - pages
    shown = {
        page: folded[page][slice(*search_words.find_line(folded[page], starts[page]))].strip()
        for page in pages
    }
    return {page for page, line in shown.items() if any(line in folded[at] for at in outputs)}


def _add_what_is_near(places: Sequence[FoundPlace], weights: Sequence[float]) -> list[float]:
    """Return the weights, increased by neighbouring facts and by the rest of the conversation."""
    facts = [(place.hit.conversation, place.hit.seq) for place in places]
    known = dict(zip(facts, weights, strict=True))
    near, others = list[float](), dict[str, list[float]]()
    for (conversation, seq), weight in zip(facts, weights, strict=True):
        beside = (
            share * known.get((conversation, seq + step), 0.0)
            for step, share in NEAR.items()
            if seq
        )
        near.append(weight + FOLLOWING * sum(beside))
        others.setdefault(conversation, []).append(near[-1])
    beyond = {
        name: COMPANION_WEIGHT * sum(sorted(each)[-MOST_COMPANIONS:-1])
        for name, each in others.items()
        if name
    }
    return [
        weight + beyond.get(conversation, 0.0)
        for weight, (conversation, _) in zip(near, facts, strict=True)
    ]


def _fit_of_conversations(
    places: Sequence[FoundPlace], held: Sequence[Iterable[str]]
) -> Mapping[str, float]:
    """Return how well each conversation's matches together fit the words, 1 for the best."""
    counts: dict[str, Counter[str]] = {}
    for place, stems in zip(places, held, strict=True):
        counts.setdefault(place.hit.conversation, Counter()).update(stems)
    counts.pop("", None)  # Entries belong to no conversation.
    having = Counter(stem for each in counts.values() for stem in each)
    rarity = {
        stem: math.log(1 + (len(counts) + 1) / (count + 0.5)) for stem, count in having.items()
    }
    sums = [sum(rarity[stem] * n / (n + 1) for stem, n in each.items()) for each in counts.values()]
    best = max(sums, default=0) or 1.0
    return {
        name: (1 + FITTING * fit / best) / (1 + FITTING)
        for name, fit in zip(counts, sums, strict=True)
    }


def show_line(place: FoundPlace, words: Iterable[str], at: int) -> SearchHit:
    at = at if at >= 0 else search_words.find_first_term(place.text, [*words])
    line = place.hit.line + place.text.count("\n", 0, at)
    return replace(place.hit, snippet=search_words.cut_snippet(place.text, at), line=line)
