"""Ranks the places that a search found, best answers first.

A place's rank depends on how many of the words it has, especially rare ones, on whether
they are in one line and in the query's order, and on what is near it. The constants were
chosen on one half of recorded sessions and of LoCoMo (`tests/benchmarks/searching.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from helix_desktop.engine.document_pages import PageStart
from helix_desktop.engine.ports import VERSION, EntryOrigin, SearchHit
from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import RECALLS, ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import search_words

# The weight of neighbouring facts that were found, too. The answer counts most.
NEAR = {-2: 0.1, -1: 0.2, 1: 0.8, 2: 0.1}
# Other matches in a conversation raise a match's rank by this weight, up to this many of them.
COMPANION_WEIGHT = 0.3
MOST_COMPANIONS = 8
FITTING = 2.0  # The gain for a message in the conversation that fits the words best as a whole.
LINE = 500  # Characters read on each side of a word in a line.
LINES = 60  # Lines read of a text.
# The exponent of the rank by frequency. Below 1, as that rank favours short texts.
BY_FREQUENCY = 0.6
IN_LINE = 10.0  # The gain if one line has all words. If it has half of them, a quarter of the gain.
IN_PAIRS = 3.0  # The gain for all words that follow each other as in the query, in any lines.
NEXT_LINE = 0.25  # The weight of the next best line.
BEST_LINES = 3  # How many lines count.
TINY = 25  # An entry with no more characters than this gets half the rank: it shows little.
KNOWN = 0.6  # The loss for lines that an earlier result has.
REORDERED = 15  # Only so many first results lose by it.
AS_WRITTEN = 1.0  # The gain for an entry with its words in upper and lower case as in the query.
FOLLOWING = 0.7  # The gain for a word that follows its predecessor.
BESIDE = 8  # In characters: a word no further away follows.
# If a place, other than a list of details, has every word, those with less than this
# share are no results.
LEAST_SHARE = 0.5
OLDER = 0.8  # The weight of an older output of a call whose newer output has as many of the words.
# The weight of copies and lists of other content.
COPY = 0.3
HISTORY = 0.5
LIST_OF_DETAILS = 0.1
# The tool that `engine/fold_document_writer.py` names for its lists of details.
HANDOVER = "handover"
BY_SHARE = 1.5  # The exponent of the share of the words that a place has.
Stems = Mapping[str, re.Pattern[str]]
_COPIES = tuple(RECALLS - {ToolName.RECALL_HISTORY})


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A fact, or a piece of an entry. `hit`: where its text begins. `words`: those
    found by the index. `pages`: those of a document, by their positions in the text.
    """

    hit: SearchHit
    text: str
    number: int  # The entry's number; 0 for a fact.
    worth: float
    words: Sequence[str]
    time: float = 0.0  # The fact's time. Its copy in a fork has the same one.
    pages: Sequence[PageStart] = ()

    @property
    def is_entry(self) -> bool:
        return self.number > 0


@dataclass(frozen=True, slots=True)
class _MatchingLines:
    """`weights`: lines, the best first. `pairs`: the weight of words that follow each other.
    `start`: where the best line's rarest word is; -1 without a line.
    """

    weights: Mapping[str, float]
    pairs: float
    start: int


@dataclass(slots=True, eq=False)
class _RankedPlace:
    """A place with what was found out of it so far."""

    place: FoundPlace
    folded: str
    stems: list[str]
    share: float = 0.0  # Of the query's words, those it has; rare ones count more.
    is_result: bool = True
    counted: Stems = field(default_factory=dict)  # The stems that count in its text.
    lines: _MatchingLines = _MatchingLines({}, 0.0, -1)
    weight: float = 0.0
    rank: float = 0.0

    @property
    def conversation(self) -> str:
        return self.place.hit.conversation

    @property
    def identity(self) -> tuple[Digest | None, str, int]:
        """The same for all pieces of an entry."""
        hit = self.place.hit
        return hit.digest, hit.conversation, hit.seq


def rank_places(places: Sequence[FoundPlace], words: Mapping[str, float]) -> list[SearchHit]:
    """Return the best place of each entry and fact, in order. `words` have weights.

    A place is a fact, or a piece of an entry, that the index has found. First it is found out which
    words each has, and so which are results at all. Then each is weighed by what it says itself, and
    by what else was found in its conversation.
    """
    stems = {stem_of_word(word): search_words.pattern_of_word(word) for word in words}
    ranked = []
    for place in _without_copies_in_forks(places):
        folded = place.text.casefold()
        stems_of_place = _stems_of_place(place, folded, stems)
        ranked.append(_RankedPlace(place, folded, stems_of_place))
    rarity = _rarity_of_stems(ranked, stems)
    _mark_results(ranked, stems, rarity)
    for candidate in ranked:
        candidate.lines = _find_matching_lines(candidate.folded, candidate.counted, rarity)
    rarity_of_all_words = sum(rarity.values())
    _compute_place_weights(ranked, words, stems, rarity_of_all_words=rarity_of_all_words)
    _rank_with_conversations(ranked)
    best_of_each = _best_of_each(ranked)
    best_first = _put_new_lines_first(best_of_each)
    return [_show_result(candidate, words, len(stems)) for candidate in best_first]


def _rarity_of_stems(ranked: Sequence[_RankedPlace], stems: Stems) -> dict[str, float]:
    """Return for each stem a number that is higher the fewer of the places have it. A stem is a word
    without its ending.
    """
    counts: Counter[str] = Counter()
    for candidate in ranked:
        counts.update(candidate.stems)
    return {stem: math.log(1 + len(ranked) / (counts[stem] + 0.5)) for stem in stems}


def _mark_results(
    ranked: Sequence[_RankedPlace], stems: Stems, rarity: Mapping[str, float]
) -> None:
    """Note each place's share of the words, and whether it is enough for a result.

    The share is by rarity: a place with one rare word of the query may have a larger
    share than one with two frequent words.
    """
    rarity_of_all_words = sum(rarity.values())
    smallest_share_of_result = _smallest_share_of_result(ranked, len(stems))
    for candidate in ranked:
        rarity_of_its_words = sum(rarity[stem] for stem in candidate.stems)
        candidate.share = rarity_of_its_words / rarity_of_all_words
        candidate.is_result = candidate.share >= smallest_share_of_result
        # Entries with less are no results. Facts with less raise the ranks of facts beside them.
        if candidate.is_result or not candidate.place.is_entry:
            candidate.counted = {stem: stems[stem] for stem in candidate.stems}


def _smallest_share_of_result(ranked: Sequence[_RankedPlace], word_count: int) -> float:
    """Return what share of the words a result needs: none, unless a place has all words."""
    for candidate in ranked:
        has_all_words = len(candidate.stems) == word_count
        is_list_of_details = _worth_of_origin(candidate.place) <= LIST_OF_DETAILS
        if has_all_words and not is_list_of_details:
            return LEAST_SHARE
    return 0.0


def _compute_place_weights(
    ranked: Sequence[_RankedPlace],
    words: Mapping[str, float],
    stems: Stems,
    *,
    rarity_of_all_words: float,
) -> None:
    """Change the weight of each place by what it says itself."""
    first_stem = next(iter(stems))
    _weigh_origins_and_copied_pages(ranked, first_stem)
    _weigh_older_outputs_less(ranked)
    total_length = sum(len(candidate.folded) for candidate in ranked)
    mean_length = total_length / max(1, len(ranked))
    for candidate in ranked:
        place = candidate.place
        frequency = _rank_by_frequency(candidate.folded, candidate.counted, words, mean_length)
        candidate.weight *= place.worth * frequency**BY_FREQUENCY * candidate.share**BY_SHARE
        candidate.weight *= _gain_by_lines(candidate.lines, rarity_of_all_words)
        if place.is_entry:
            length = len(candidate.folded)
            share_as_written = _share_as_written(place.text, candidate.counted, words)
            candidate.weight *= length / (length + TINY) * (1 + AS_WRITTEN * share_as_written)


def _rank_with_conversations(ranked: Sequence[_RankedPlace]) -> None:
    """Rank each place by its weight, and by what else was found in its conversation."""
    _add_what_is_near(ranked)
    fits = _fit_of_conversations(ranked)
    for candidate in ranked:
        candidate.rank *= fits.get(candidate.conversation, 1.0)


def _best_of_each(ranked: Iterable[_RankedPlace]) -> list[_RankedPlace]:
    """Return the best place of each entry and fact, the best first."""
    results = [candidate for candidate in ranked if candidate.is_result]
    results.sort(key=lambda candidate: candidate.rank, reverse=True)
    best: dict[tuple[Digest | None, str, int], _RankedPlace] = {}
    for candidate in results:
        best.setdefault(candidate.identity, candidate)
    return list(best.values())


def _show_result(candidate: _RankedPlace, words: Mapping[str, float], stem_count: int) -> SearchHit:
    place = candidate.place
    start = candidate.lines.start
    # Where folding changed the text's length, the position does not fit.
    if len(candidate.folded) != len(place.text):
        start = -1
    has_all_words = len(candidate.stems) == stem_count
    # What the call says stands beside the line, so the line says the rest.
    words_to_show = _words_not_in_call(place, words)
    if len(words_to_show) == 1 and len(words_to_show) < len(words) and start >= 0:
        shown_line = place.text[slice(*search_words.find_line(place.text, start))]
        if not search_words.pattern_of_word(words_to_show[0]).search(shown_line.casefold()):
            return replace(show_line(place, words_to_show, -1), has_all_words=has_all_words)
    return replace(show_line(place, words, start), has_all_words=has_all_words)


def _words_not_in_call(place: FoundPlace, words: Iterable[str]) -> list[str]:
    call = f"{place.hit.about.tool} {place.hit.about.source}".casefold()
    return [word for word in words if stem_of_word(word) not in call]


def _put_new_lines_first(best_first: Sequence[_RankedPlace]) -> list[_RankedPlace]:
    """Return the places in a new order. Lines that an earlier place has count less."""
    not_yet_placed = list(best_first[:REORDERED])
    lines_of_earlier_places: set[str] = set()

    def rank_by_new_lines(candidate: _RankedPlace) -> float:
        return _rank_without_known_lines(candidate, lines_of_earlier_places)

    reordered = []
    while not_yet_placed:
        best = max(not_yet_placed, key=rank_by_new_lines)
        not_yet_placed.remove(best)
        lines_of_earlier_places.update(best.lines.weights)
        reordered.append(best)
    return reordered + list(best_first[REORDERED:])


def _rank_without_known_lines(candidate: _RankedPlace, known_lines: set[str]) -> float:
    """Return the place's rank, less the share of its lines that an earlier place has."""
    squares = {line: weight * weight for line, weight in candidate.lines.weights.items()}
    known_squares = sum(squares[line] for line in squares.keys() & known_lines)
    all_squares = sum(squares.values()) or 1  # A place may have no such line.
    return candidate.rank * (1 - KNOWN * known_squares / all_squares)


def _without_copies_in_forks(places: Sequence[FoundPlace]) -> list[FoundPlace]:
    """Keep only the oldest conversation's copy of a message that forks have, too. A copy has the time
    and number of its original, and the ids of conversations sort by time.
    """
    oldest_conversation: dict[tuple[float, int], str] = {}
    for place in places:
        message = (place.time, place.hit.seq)
        known = oldest_conversation.get(message, place.hit.conversation)
        oldest_conversation[message] = min(known, place.hit.conversation)

    kept_places: list[FoundPlace] = []
    for place in places:
        oldest = oldest_conversation[place.time, place.hit.seq]
        if place.is_entry or place.hit.conversation == oldest:
            kept_places.append(place)
    return kept_places


def _stems_of_place(place: FoundPlace, folded: str, stems: Stems) -> list[str]:
    """Return the stems that the index found here, or that are in the text or name its call."""
    stems_from_index = {stem_of_word(word) for word in place.words}
    call = f"{place.hit.about.tool} {place.hit.about.source}".casefold()
    stems_here: list[str] = []
    for stem, pattern in stems.items():
        if stem in stems_from_index or stem in call or pattern.search(folded):
            stems_here.append(stem)
    return stems_here


def _rank_by_frequency(
    text: str, stems: Stems, words: Mapping[str, float], mean_length: float
) -> float:
    """Return the rank by BM25, the usual formula: the more often a text has a word, the
    better, but each further occurrence gains less, and in a long text each gains less.

    A stem is a word without its ending. A whole word counts twice: also as a stem.
    """
    # The constants that BM25 calls k1 and b: 1.2 and, instead of its usual 0.75, 0.4.
    saturation = 1.2
    if mean_length:
        saturation = 1.2 * (0.6 + 0.4 * len(text) / mean_length)
    stem_weights = {stem_of_word(word): weight for word, weight in words.items()}
    rank = 0.0
    for stem, weight in stem_weights.items():
        if stem in stems:
            stem_count = len(stems[stem].findall(text)) or 1
            rank += weight * stem_count / (stem_count + saturation)
    for word, weight in words.items():
        whole_word = word.casefold()
        if whole_word not in stem_weights:
            word_count = text.count(whole_word)
            rank += weight * word_count / (word_count + saturation)
    return rank


def _share_as_written(text: str, stems: Stems, words: Mapping[str, float]) -> float:
    """Return the share of the text's words that it has in upper and lower case as in the query."""
    total = 0.0
    as_written = 0.0
    for word, weight in words.items():
        if stem_of_word(word) not in stems:
            continue
        total += weight
        exact = re.escape(word)
        if re.search(rf"{exact}(?<!\w{exact})(?!\w)", text):
            as_written += weight
    return as_written / (total or 1)


# --- Lines with several words


@dataclass(frozen=True, slots=True)
class _TextLine:
    """A line of a text around a match. `end`: where the next line may be looked for."""

    text: str
    match_start: int
    end: int


def _line_around(text: str, position: int) -> _TextLine:
    """Return the line at a position, without what is too far from it."""
    earliest = max(0, position - LINE)
    latest = position + LINE
    start = text.rfind("\n", earliest, position) + 1 or earliest
    end = text.find("\n", position, latest)
    if end < 0:
        end = latest
    return _TextLine(text[start:end].strip(), position, end)


def _find_matching_lines(text: str, stems: Stems, rarity: Mapping[str, float]) -> _MatchingLines:
    """Find the lines with any of several words, best first. Words that follow each other
    as in the query weigh more.

    The rarest word is looked for first, as its lines weigh most. This ends early, once
    lines with only the words not yet looked for could no longer be among the best.
    """
    if len(stems) < 2:
        return _MatchingLines({}, 0.0, -1)
    weights: dict[str, float] = {}
    starts: dict[str, int] = {}
    pairs: dict[tuple[str, str], float] = {}
    # What a line can weigh at most that has only words not looked for yet.
    most_of_other_words = (1 + FOLLOWING) * sum(rarity[stem] for stem in stems)
    rarest_first = sorted(stems, key=rarity.__getitem__, reverse=True)
    for stem in rarest_first:
        better_line_count = sum(weight > most_of_other_words for weight in weights.values())
        if better_line_count >= BEST_LINES:
            break
        most_of_other_words -= (1 + FOLLOWING) * rarity[stem]
        for line in _lines_with_stem(text, stems[stem]):
            if line.text in weights:
                continue
            stem_ends = _ends_of_stems(line.text, stems)
            pairs_in_line = _pairs_in_line(line.text, stem_ends, stems, rarity)
            weight_of_words = sum(rarity[found_stem] for found_stem in stem_ends)
            weight_of_pairs = FOLLOWING * sum(pairs_in_line.values())
            weights[line.text] = weight_of_words + weight_of_pairs
            starts[line.text] = line.match_start
            pairs |= pairs_in_line
    if not weights:
        return _MatchingLines({}, 0.0, -1)

    best_first = sorted(weights, key=weights.__getitem__, reverse=True)
    ordered_weights = {line: weights[line] for line in best_first}
    best_line = best_first[0]
    weight_of_all_pairs = sum(pairs.values())
    return _MatchingLines(ordered_weights, weight_of_all_pairs, starts[best_line])


def _lines_with_stem(text: str, stem_pattern: re.Pattern[str]) -> Iterator[_TextLine]:
    """Yield the first lines of a text in which the pattern matches, each once."""
    search_start = 0
    for _ in range(LINES):
        match = stem_pattern.search(text, search_start)
        if match is None:
            return
        line = _line_around(text, match.start())
        yield line
        search_start = line.end


def _ends_of_stems(line: str, stems: Stems) -> dict[str, int]:
    """Return the stems in the line, in the query's order, and where each first ends."""
    ends = {}
    for stem, pattern in stems.items():
        match = pattern.search(line)
        if match is not None:
            ends[stem] = match.end()
    return ends


def _pairs_in_line(
    line: str, stem_ends: Mapping[str, int], stems: Stems, rarity: Mapping[str, float]
) -> dict[tuple[str, str], float]:
    """Return words of the line that follow each other there as in the query, and their weights."""
    pairs = {}
    for first_stem, second_stem in pairwise(stem_ends):
        end_of_first = stem_ends[first_stem]
        match = stems[second_stem].search(line, end_of_first)
        if match is not None and match.start() - end_of_first <= BESIDE:
            pairs[first_stem, second_stem] = min(rarity[first_stem], rarity[second_stem])
    return pairs


def _gain_by_lines(lines: _MatchingLines, rarity_of_all_words: float) -> float:
    """Return a factor above 1 by the share of the words in the best lines, and in pairs."""
    best_weights = list(lines.weights.values())[:BEST_LINES]
    share_in_lines = 0.0
    for number_of_better, weight in enumerate(best_weights):
        share_in_lines += NEXT_LINE**number_of_better * (weight / rarity_of_all_words) ** 2
    share_in_pairs = lines.pairs / rarity_of_all_words
    return 1 + IN_LINE * share_in_lines + IN_PAIRS * share_in_pairs


# --- What else was found


def _weigh_older_outputs_less(ranked: Iterable[_RankedPlace]) -> None:
    """Weigh outputs less that have a newer output of the same call with as many words:
    old files, old test runs.
    """
    outputs_by_call: dict[EntryOrigin, list[_RankedPlace]] = {}
    for candidate in ranked:
        place = candidate.place
        if place.is_entry and place.hit.about.source:
            outputs_by_call.setdefault(place.hit.about, []).append(candidate)
    for outputs in outputs_by_call.values():
        for output in outputs:
            if _is_outdated(output, outputs):
                output.weight *= OLDER


def _is_outdated(output: _RankedPlace, outputs_of_call: Iterable[_RankedPlace]) -> bool:
    for other in outputs_of_call:
        is_newer = other.place.number > output.place.number
        if is_newer and other.share >= output.share:
            return True
    return False


def _worth_of_origin(place: FoundPlace) -> float:
    tool = place.hit.about.tool
    if tool in (HANDOVER, search_words.NOTES):
        return LIST_OF_DETAILS
    if tool == VERSION or tool.endswith(_COPIES):
        return COPY
    return 1.0


def _weigh_origins_and_copied_pages(ranked: Sequence[_RankedPlace], first_stem: str) -> None:
    """Weigh each place by where it comes from. A page of the history counts less if its best
    line is also in an output. Messages are only in such pages.
    """
    pages = []
    outputs = []
    for candidate in ranked:
        candidate.weight = _worth_of_origin(candidate.place)
        if candidate.place.hit.about.tool.endswith(ToolName.RECALL_HISTORY):
            pages.append(candidate)
        elif candidate.place.is_entry and candidate.weight == 1.0:
            outputs.append(candidate)
    for page in pages:
        start = page.lines.start
        if start < 0:
            start = max(0, page.folded.find(first_stem))
        line = page.folded[slice(*search_words.find_line(page.folded, start))].strip()
        if any(line in output.folded for output in outputs):
            page.weight = HISTORY


def _add_what_is_near(ranked: Sequence[_RankedPlace]) -> None:
    """Set each rank to the weight, increased first by neighbouring facts, then by the
    other matches in the same conversation.
    """
    weights_of_facts: dict[tuple[str, int], float] = {}
    for candidate in ranked:
        weights_of_facts[candidate.conversation, candidate.place.hit.seq] = candidate.weight
    for candidate in ranked:
        weight_of_neighbours = _weight_of_neighbours(candidate, weights_of_facts)
        candidate.rank = candidate.weight + FOLLOWING * weight_of_neighbours

    ranks_of_conversations: dict[str, list[float]] = {}
    for candidate in ranked:
        if candidate.conversation:  # Entries belong to no conversation.
            ranks = ranks_of_conversations.setdefault(candidate.conversation, [])
            ranks.append(candidate.rank)
    gains_of_conversations: dict[str, float] = {}
    for conversation, ranks in ranks_of_conversations.items():
        # All but the best one, which the others accompany.
        ranks_of_companions = sorted(ranks)[-MOST_COMPANIONS:-1]
        gains_of_conversations[conversation] = COMPANION_WEIGHT * sum(ranks_of_companions)
    for candidate in ranked:
        candidate.rank += gains_of_conversations.get(candidate.conversation, 0.0)


def _weight_of_neighbours(
    candidate: _RankedPlace, weights_of_facts: Mapping[tuple[str, int], float]
) -> float:
    """Return the weights of the facts just before and after this one, as far as they were
    found, each multiplied by its share in `NEAR`. 0 for an entry, which has no neighbours.
    """
    seq = candidate.place.hit.seq
    if not seq:
        return 0.0
    sum_of_shares = 0.0
    for distance, share in NEAR.items():
        neighbour = (candidate.conversation, seq + distance)
        sum_of_shares += share * weights_of_facts.get(neighbour, 0.0)
    return sum_of_shares


def _fit_of_conversations(ranked: Iterable[_RankedPlace]) -> Mapping[str, float]:
    """Return how well each conversation's matches together fit the words, 1 for the best."""
    counts: dict[str, Counter[str]] = {}
    for candidate in ranked:
        if candidate.conversation:  # Entries belong to no conversation.
            stem_counts = counts.setdefault(candidate.conversation, Counter())
            stem_counts.update(candidate.stems)
    rarity = _rarity_among_conversations(counts)

    fits: dict[str, float] = {}
    for conversation, stem_counts in counts.items():
        fit = 0.0
        for stem, count in stem_counts.items():
            # The first match says most. However many follow, they weigh less than one more word.
            fit += rarity[stem] * count / (count + 1)
        fits[conversation] = fit
    best_fit = max(fits.values(), default=0) or 1.0

    shares: dict[str, float] = {}
    for conversation, fit in fits.items():
        shares[conversation] = (1 + FITTING * fit / best_fit) / (1 + FITTING)
    return shares


def _rarity_among_conversations(counts: Mapping[str, Counter[str]]) -> Mapping[str, float]:
    """Return how rare each stem is: the fewer conversations have it, the more it weighs."""
    conversations_with_stem: Counter[str] = Counter()
    for stem_counts in counts.values():
        conversations_with_stem.update(stem_counts.keys())
    rarity: dict[str, float] = {}
    for stem, conversation_count in conversations_with_stem.items():
        rarity[stem] = math.log(1 + (len(counts) + 1) / (conversation_count + 0.5))
    return rarity


def show_line(place: FoundPlace, words: Iterable[str], start: int) -> SearchHit:
    """Return the place's hit with the line at `start`; if that is negative, the first word's."""
    if start < 0:
        start = search_words.find_first_term(place.text, list(words))
    line = place.hit.line + place.text.count("\n", 0, start)
    snippet = search_words.cut_snippet(place.text, start)
    hit = replace(place.hit, snippet=snippet, line=line)
    page: PageStart | None = None
    for next_page in place.pages:
        if next_page.position > start:
            break
        page = next_page
    if page is None:
        return hit
    return replace(hit, page_unit=page.unit, page=page.number)
